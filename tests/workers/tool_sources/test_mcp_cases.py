"""MCP servers with the habits of real ones: the tools that are offered, and the calls that reach
them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs make install")

from loopline.workers.tool_sources.sources import ToolSources
from tests.workers.tool_sources.forgetful_server import ForgetfulServer
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import joined, source

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).with_name("cases") / "mcp.json").read_text()
)
SERVER = str(Path(__file__).with_name("case_server.py"))


def _name(case: dict[str, Any]) -> str:
    return f"{case['id']} {case['kind']}"


@pytest.mark.parametrize("case", [case for case in CASES if "http" not in case], ids=_name)
async def test_this_kind_of_server_over_pipes_is_used_as_intended(
    case: dict[str, Any], tmp_path: Path
) -> None:
    case_path, received = tmp_path / "case.json", tmp_path / "received"
    case_path.write_text(json.dumps(case))
    command = [sys.executable, "-S", "-E", SERVER, str(case_path), str(received)]

    def last() -> Any:
        lines = received.read_text().splitlines() if received.exists() else []
        return json.loads(lines[-1]) if lines else None

    async with joined(s=source(mcp={"command": command})) as sources:
        await _check(case, sources, last)


@pytest.mark.parametrize("case", [case for case in CASES if "http" in case], ids=_name)
async def test_this_kind_of_server_over_http_is_used_as_intended(case: dict[str, Any]) -> None:
    habits = case["http"]
    server = ForgetfulServer(redirect=habits.get("redirect"))
    server.refusal = habits.get("refusal", server.refusal)

    def last() -> Any:
        return {"good": server.received[-1]} if server.received else None

    async with (
        listening(server.app()) as url,
        joined(s=source(mcp={"url": f"{url}/mcp"})) as sources,
    ):
        await _check(case, sources, last, server.forget)


async def _check(
    case: dict[str, Any],
    sources: ToolSources,
    last: Callable[[], Any],
    restart: Callable[[], None] | None = None,
) -> None:
    state = sources.state()["s"]
    names = {spec.name.removeprefix("s__") for spec in sources.specs}
    right = case.get("right", {})
    assert set(right.get("offered_at_least", [])) <= names, state
    assert len(names) == right.get("offered_count", len(names)), state
    assert len(state["left_out"]) == right.get("left_out_count", len(state["left_out"])), state
    for part in right.get("trouble_contains", []):
        assert part in state["trouble"]
    if "result" in case:
        problem = _problem("good", right, await sources.call("s__good", {}), last(), state)
        assert not problem, problem
    for call in case.get("calls", []):
        if call.get("restart"):
            assert restart is not None
            restart()
            continue
        answer = await sources.call(f"s__{call['tool']}", call["arguments"])
        problem = _problem(call["tool"], call["right"], answer, last(), state)
        assert not problem, (call, problem)


def _problem(
    tool: str, right: dict[str, Any], answer: dict[str, Any], received: Any, state: dict[str, Any]
) -> str:
    """Return the differences; empty if there are none."""
    if "any_of" in right:
        ways = [_problem(tool, way, answer, received, state) for way in right["any_of"]]
        return "" if "" in ways else "; ".join(ways)
    if right.get("left_out"):
        named = any(entry.startswith(f"{tool}: ") for entry in state["left_out"])
        return "" if named else f"{tool} is not named in {state}"
    wrong = [
        f"no {part!r} in {answer}"
        for key in ("result", "error")
        for part in right.get(f"{key}_contains", [])
        if part not in str(answer.get(key))
    ]
    if "result" in right and answer != {"result": right["result"]}:
        wrong.append(f"the answer is {answer}")
    if "received" in right and (received != {tool: right["received"]} or "error" in answer):
        wrong.append(f"{received} was received, and {answer} answered")
    return "; ".join(wrong)
