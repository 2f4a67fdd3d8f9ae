"""The behaviour of commands while a deployment starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from loopline.runtime.config.state import RunFile, StateLock
from loopline.runtime.errors import EXIT_CONFIG, EXIT_FAILED, EXIT_UNREACHABLE
from loopline.workers.atomic_files import write_atomic
from tests.runtime.conftest import Deployment, changes


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the pid of a supervisor that was killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def starting(deployment: Deployment, bystander: subprocess.Popen[bytes]) -> Iterator[Deployment]:
    """A deployment whose supervisor, this process, has taken the lock and loads Redis's data."""
    deployment.state.create()
    run_file = RunFile(
        pid=bystander.pid,
        started=0.0,
        profile="micro",
        redis_url="unix:///x",
        control="/x",
        version="1",
    )
    write_atomic(deployment.state.run_file, run_file.model_dump_json(), private=True)
    lock = StateLock(deployment.state)
    yield deployment
    lock.release()


def test_down_kills_no_process_while_a_deployment_starts(
    starting: Deployment, bystander: subprocess.Popen[bytes]
) -> None:
    starting.run("down")
    assert bystander.poll() is None


@pytest.mark.parametrize("command", [["down"], ["status"], ["ask", "hi"], ["scale", "slm=2"]])
def test_commands_report_that_a_deployment_is_just_starting(
    starting: Deployment, command: list[str]
) -> None:
    process = starting.run(*command)
    assert process.returncode == EXIT_UNREACHABLE
    assert f"just starting in {starting.state.path} (pid {os.getpid()})" in process.stderr


def test_the_error_for_a_port_in_use_names_the_process_that_uses_it(deployment: Deployment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        words = changes(("gateway",), "workers.gateway.count=1", f"gateway.port={port}")
        process = deployment.run("up", "--detach", "--profile", "scripted", *words)
    assert process.returncode == EXIT_CONFIG
    assert f"can't listen on 127.0.0.1:{port}" in process.stderr
    assert f"by process {os.getpid()} (" in process.stderr
    assert "gateway.port=0 takes a free port" in process.stderr


def test_up_fails_and_says_so_if_its_workers_are_still_loading(deployment: Deployment) -> None:
    words = changes(("gpu",), "supervisor.ready_seconds=0.1")
    process = deployment.run("up", "--detach", "--profile", "micro", *words)
    assert process.returncode == EXIT_FAILED
    assert "0 of 1 workers ready" in process.stdout
    assert "`runtime status` shows whether one still loads" in process.stderr
