"""`make demo`, without the minute that it takes: its commands exist, and it leaves nothing behind
however it ends. `tests/trainers/test_shipped_umi.py` tests that its models solve its world.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from loopline.runtime import demo
from loopline.runtime.cli import app
from loopline.runtime.config import settings as config
from loopline.runtime.errors import EXIT_CONFIG
from tests.runtime.conftest import LIMIT, Deployment, until


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the demo's state, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="sw-") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


def test_every_step_is_an_existing_command_with_valid_options(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loopline.bench.cli import app as bench

    steps: list[tuple[str, ...]] = []

    def noted(environment: dict[str, str], *command: str, may_fail: bool = False) -> None:
        steps.append(command)

    monkeypatch.setattr(demo, "_step", noted)
    assert demo.main() == 0
    programs = {"runtime": typer.main.get_command(app), "bench": typer.main.get_command(bench)}
    for program, name, *arguments in steps:
        group = programs[program]
        assert isinstance(group, TyperGroup)
        context = group.make_context(program, [name, *arguments])
        _, command, words = group.resolve_command(context, [name, *arguments])
        assert command is not None
        params = command.make_context(name, words, parent=context).params
        if name == "up":
            config.load(params["profile"], environ={})
    assert [step[1] for step in steps] == [
        "up", *["ask"] * demo.QUESTIONS, "wordproblems", "run", "down", "up", "ask",
    ]  # fmt: skip


def test_a_failed_step_ends_the_demo_with_its_exit_code_and_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOOPLINE_BUS__LEASE_SECONDS", "soon")
    assert demo.main() == EXIT_CONFIG
    output = capfd.readouterr()
    assert "$ runtime up --profile micro --detach" in output.out
    assert "runtime ask" not in output.out
    assert "LOOPLINE_BUS__LEASE_SECONDS" in output.err
    assert "stopped in " in output.out
    assert list(folder.iterdir()) == []


def test_ctrl_c_while_a_deployment_starts_leaves_no_process_and_no_folder(folder: Path) -> None:
    """The supervisor has its own session, which the terminal's Ctrl-C does not reach."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loopline.runtime.demo"],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        [state] = until(lambda: [*folder.glob("loopline-demo-*")], "state directory")
        deployment = Deployment(state)
        until(lambda: any(os.getsid(child.pid) != process.pid for child in deployment.processes()),
              "supervisor in a session of its own")  # fmt: skip
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 130, output
    assert "stopped in " in output
    assert deployment.processes() == []
    assert list(folder.iterdir()) == []
