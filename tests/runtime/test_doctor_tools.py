"""The doctor's findings about tool sources: what is missing, and the remedy."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="needs make install")

from loopline.runtime.config.settings import Settings
from loopline.runtime.errors import EXIT_FAILED
from loopline.runtime.observe import doctor_tools
from loopline.runtime.observe.check_results import Finding
from loopline.runtime.observe.doctor_tools import tool_findings
from tests.runtime.conftest import Deployment
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.town_api import document
from tests.workers.tool_sources.town_server import town

NOBODY = "http://127.0.0.1:1/mcp"


def found(source: dict[str, object], *, online: bool = False, tool_workers: int = 1) -> Finding:
    """The last finding for one source."""
    settings = Settings.model_validate(
        {"tools": {"town": source}, "workers": {"tool": {"count": tool_workers}}}
    )
    *_, last = tool_findings(settings, online=online)
    return last


@pytest.mark.parametrize(
    ("source", "says", "do"),
    [
        (
            {"mcp": {"command": ["true"], "env": ["PATH", "NOBODY_SETS_THIS"]}},
            "the environment variable NOBODY_SETS_THIS, which is not set",
            "export NOBODY_SETS_THIS=…",
        ),
        (
            {"mcp": {"url": NOBODY}, "bearer_env": "NOBODY_SETS_THIS"},
            "the environment variable NOBODY_SETS_THIS",
            "export NOBODY_SETS_THIS=…",
        ),
        (
            {"mcp": {"command": ["no-such-program-here", "stdio"]}},
            "there is no program 'no-such-program-here' in the PATH",
            "install it, or set tools.town.mcp.command",
        ),
        (
            {"mcp": {"command": ["./server"], "cwd": "/"}},
            "there is no program './server' there",
            "install it, or set tools.town.mcp.command",
        ),
        (
            {"mcp": {"command": ["true"], "cwd": "/no/such/folder"}},
            "there is no folder /no/such/folder",
            "set tools.town.mcp.cwd",
        ),
        ({"openapi": "nowhere.yaml"}, "nowhere.yaml: No such file", "set tools.town.openapi"),
    ],
)
def test_a_missing_part_of_a_source_is_reported_with_a_remedy(
    source: dict[str, object], says: str, do: str
) -> None:
    finding = found(source)
    assert (finding.level, finding.subject) == ("missing", "tools town")
    assert says in finding.says
    assert do in finding.do


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a JSON or YAML object"),
        ('{"swagger": "2.0"}', "Swagger 2 (convert it to OpenAPI 3)"),
        ('{"openapi": "3.0.3", "paths": {}}', "lists no server with an http(s) URL"),
    ],
)
def test_an_unusable_document_is_reported_with_its_fault(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "town.yaml"
    path.write_text(text)
    finding = found({"openapi": str(path)})
    assert finding.level == "missing"
    assert finding.says.startswith(f"{path}: ")
    assert says in finding.says


def test_the_tools_of_a_document_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "town.json"
    path.write_text(json.dumps(document("http://127.0.0.1:1/v1")))
    finding = found({"openapi": str(path)})
    assert finding.level == "ok"
    assert f"{path}: 9 tools, 2 left out, such as " in finding.says
    none = found({"openapi": str(path), "allow": ["sea"]})
    assert (none.level, "tools.town.allow" in none.do) == ("warn", True)


def test_an_existing_program_is_not_started(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
    program.chmod(0o700)
    for mcp in ({"command": [str(program)]}, {"command": ["./server"], "cwd": str(tmp_path)}):
        finding = found({"mcp": mcp}, online=True)
        assert (finding.level, "not started" in finding.says) == ("ok", True)
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("source", [{"mcp": {"url": NOBODY}}, {"openapi": NOBODY}])
def test_a_url_is_requested_only_online_and_is_missing_if_it_does_not_answer(
    source: dict[str, object],
) -> None:
    offline, online = found(source), found({**source, "connect_seconds": 5}, online=True)
    assert (offline.level, offline.says) == ("warn", f"{NOBODY}: not tried")
    assert "--online" in offline.do
    assert online.level == "missing"
    assert online.says.startswith(f"{NOBODY}: ")
    assert "check the address" in online.do


async def test_a_server_that_answers_online_is_asked_for_its_tools() -> None:
    async with listening(town().streamable_http_app()) as url:
        source: dict[str, object] = {"mcp": {"url": f"{url}/mcp"}, "allow": ["add", "fails"]}
        finding = await asyncio.to_thread(found, source, online=True)
    assert (finding.level, finding.says) == ("ok", f"{url}/mcp: 2 tools")


def test_missing_packages_are_reported_once_with_the_extra_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_mcp(name: str) -> ModuleSpec | None:
        return None if name == "mcp" else find_spec(name)

    monkeypatch.setattr(doctor_tools, "find_spec", without_mcp)
    finding = found({"mcp": {"url": NOBODY}})
    assert (finding.level, finding.subject) == ("missing", "tools")
    assert finding.says.startswith("mcp missing")
    assert finding.do.endswith("pip install --constraint constraints.txt --editable '.[tools]'")


def test_sources_without_a_tool_worker_are_reported() -> None:
    settings = Settings.model_validate({"tools": {"town": {"mcp": {"command": [sys.executable]}}}})
    first, second = tool_findings(settings, online=False)
    assert (first.level, "no tool worker" in first.says) == ("warn", True)
    assert second.level == "ok"


def test_the_command_reports_a_missing_source_and_fails(
    tmp_path: Path,
) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text(
        'extends = "scripted"\n[tools.town]\nmcp = { command = ["no-such-program-here"] }\n'
    )
    nowhere = Deployment(tmp_path / "state")
    process = nowhere.run("doctor", "--json", "--profile", str(profile))
    report = json.loads(process.stdout)
    assert (process.returncode, report["ok"]) == (EXIT_FAILED, False)
    assert [
        finding["subject"] for finding in report["findings"] if finding["level"] == "missing"
    ] == ["tools town"]
