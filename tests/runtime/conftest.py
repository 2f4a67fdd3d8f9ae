"""Deployments for tests: each has its own state directory, and none leaves a process running."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopline.runtime.client import deployment as deployment_of
from loopline.runtime.commands.status import collect_from_bus
from loopline.runtime.config.settings import load_resolved_file
from loopline.runtime.config.state import StateDirectory
from tests.forked import forked, preload_of

LIMIT = 120.0
"""Limit in seconds for every wait. Generous: the suite also runs alongside other work."""
QUICK = (
    "bus.lease_seconds=1",
    "bus.block_seconds=0.2",
    "bus.sweep_seconds=0.1",
    "supervisor.backoff_seconds=0.1",
    "supervisor.drain_seconds=10",
)
"""Short times, so that a test sees within moments what takes seconds in production."""
KINDS = ("planner", "slm", "gpu", "tool", "recorder", "jobs")
"""The kinds of workers in the profile `micro` and in profiles that extend it."""
ASKED = ("planner", "slm", "gpu", "tool")
"""The kinds of workers that answer a question."""


def until(condition: Callable[[], Any], what: str, limit: float = LIMIT) -> Any:
    """Wait until the condition holds; returns its value. Fails after `limit`, naming `what`."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"within {limit:g} s: no {what}")
        time.sleep(0.05)


def changes(kinds: Collection[str] = KINDS, *overrides: str) -> list[str]:
    """Options of `up`: short times, and only workers of `kinds`."""
    without = [f"workers.{kind}.count=0" for kind in KINDS if kind not in kinds]
    return [word for item in (*QUICK, *without, *overrides) for word in ("--set", item)]


class Deployment:
    """One state directory and the `runtime` command on it."""

    def __init__(self, path: Path) -> None:
        self.state = StateDirectory(path)
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("LOOPLINE_")},
            "LOOPLINE_STATE": str(self.state.path),
            "LOOPLINE_WORKERS__GATEWAY__COUNT": "0",
            "COLUMNS": "200",
        }
        self._started: list[subprocess.Popen[str]] = []

    def run(
        self, *arguments: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `runtime …` until it exits."""
        return forked(
            "loopline.runtime.cli",
            preload_of("loopline.runtime.cli", arguments, Path.cwd()),
            arguments,
            env={**self.environ, **(env or {})},
            stdin=stdin or b"",
            timeout=LIMIT,
        )

    def ok(
        self, *arguments: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None
    ) -> str:
        """The output of a command that must succeed."""
        process = self.run(*arguments, stdin=stdin, env=env)
        assert process.returncode == 0, f"{process.stdout}\n{process.stderr}"
        return process.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """`runtime …`, left running."""
        process = subprocess.Popen(
            [sys.executable, "-m", "loopline.runtime", *arguments],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def up(self, *overrides: str, profile: str = "scripted", kinds: Collection[str] = KINDS) -> str:
        """`runtime up`. Each worker takes most of a second to start: name the `kinds` that a test
        needs."""
        words = changes(kinds, *overrides)
        return self.ok("up", "--detach", "--profile", profile, *words)

    def status(self) -> dict[str, Any]:
        """The output of `runtime status --json`, without starting a process each time."""
        run = self.state.running()
        assert run is not None, "no deployment runs"
        settings = load_resolved_file(self.state.resolved)
        where = deployment_of.Deployment(settings, self.state, run, run.profile)
        return asyncio.run(collect_from_bus(where)).model_dump()

    def workers(self, kind: str, state: str = "ready") -> list[dict[str, Any]]:
        workers: list[dict[str, Any]] = self.status()["workers"]
        return [w for w in workers if w["kind"] == kind and w["state"] == state]

    def ask(self, question: str, *options: str) -> dict[str, Any]:
        return json.loads(self.ok("ask", "--json", question, *options))

    def processes(self) -> list[psutil.Process]:
        """Every live process of this deployment, even after its supervisor died. A server that
        renamed itself has lost its environment, but works in the state directory."""
        processes: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("LOOPLINE_STATE") == str(self.state.path)
                inside = Path(process.cwd()).is_relative_to(self.state.path)
                if (mine or inside) and process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
            except (psutil.Error, FileNotFoundError):
                continue
        return processes

    def supervisor_pid(self) -> int:
        run = self.state.running()
        assert run is not None
        return run.pid

    def end(self) -> None:
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        for process in self._started:
            if process.returncode is None:
                process.communicate(timeout=LIMIT)
        until(lambda: not self.processes(), "end of all processes")


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    """A state directory of the test's own, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        deployment = Deployment(Path(folder))
        yield deployment
        deployment.end()


@pytest.fixture(scope="session")
def shared() -> Iterator[Deployment]:
    """One scripted deployment for all tests that only use it. Don't stop or break it."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        deployment = Deployment(Path(folder))
        try:
            deployment.up()
            yield deployment
        finally:
            deployment.end()


def without_planners(deployment: Deployment) -> None:
    """Stop all planners and wait until they have drained: otherwise the next one would get another
    name and another log."""
    deployment.ok("scale", "planner=0")
    until(
        lambda: all(worker["kind"] != "planner" for worker in deployment.status()["workers"]),
        "end of the planners",
    )


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[Deployment]:
    """A state directory in which nothing runs."""
    deployment = Deployment(tmp_path / "state")
    yield deployment
    deployment.end()
