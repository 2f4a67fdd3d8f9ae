"""`runtime status` reports any frozen process and does not exit with 0."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopline.runtime.errors import EXIT_FAILED, EXIT_UNREACHABLE
from loopline.runtime.observe.status import Status, WorkerStatus, judge
from loopline.testing import RedisProcess
from tests.runtime.conftest import Deployment, until

KINDS = ("planner", "slm", "tool")


@pytest.fixture(scope="module")
def running() -> Iterator[Deployment]:
    """One deployment, which each test leaves healthy."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        deployment = Deployment(Path(folder))
        try:
            deployment.up(kinds=KINDS)
            yield deployment
        finally:
            deployment.end()


def well(deployment: Deployment) -> bool:
    return deployment.status()["phase"] == "ready"


def pids(deployment: Deployment) -> list[int]:
    return [worker["pid"] for worker in deployment.status()["workers"]]


def send(processes: list[int], number: signal.Signals) -> None:
    for pid in processes:
        os.kill(pid, number)


@pytest.mark.slow
def test_a_deployment_whose_workers_are_all_frozen_is_not_ready(running: Deployment) -> None:
    frozen = pids(running)
    send(frozen, signal.SIGSTOP)
    try:
        until(lambda: not well(running), "another phase than ready")
        until(lambda: len(running.status()["unserved"]) == len(KINDS), "end of all heartbeats")
        process = running.run("status")
        assert process.returncode == EXIT_FAILED
        assert process.stdout.startswith("degraded")
        assert "no worker is ready for: planner, slm, tool" in process.stdout
    finally:
        send(frozen, signal.SIGCONT)
    until(lambda: well(running), "workers that woke up")
    assert running.run("status").returncode == 0


@pytest.mark.slow
def test_the_health_of_one_kind_does_not_hang_on_the_others(running: Deployment) -> None:
    [frozen] = [w["pid"] for w in running.status()["workers"] if w["kind"] == "tool"]
    send([frozen], signal.SIGSTOP)
    try:
        until(lambda: running.status()["unserved"] == ["tool"], "end of its heartbeat")
        assert running.run("status", "--worker", "slm").returncode == 0
        assert running.run("status", "--worker", "tool").returncode == EXIT_FAILED
    finally:
        send([frozen], signal.SIGCONT)
    until(lambda: well(running), "the worker that woke up")


def test_a_kind_without_a_ready_worker_is_reported_although_others_are_ready() -> None:
    states = {"slm-1": "ready", "tool-1": "silent", "gpu-1": "draining", "gpu-2": "backoff"}
    status = Status(
        phase="ready",
        workers=[
            WorkerStatus(name=name, kind=name.partition("-")[0], state=state)
            for name, state in states.items()
        ],
    )
    judge(status)
    assert status.phase == "degraded"
    assert status.unserved == ["tool"]


def test_a_kind_whose_workers_are_all_gone_is_reported_without_a_supervisor() -> None:
    status = Status(phase="joined", workers=[WorkerStatus(name="slm-1", kind="slm", state="ready")])
    judge(status, ("gpu", "slm"))
    assert (status.phase, status.unserved) == ("joined", ["gpu"])


@pytest.mark.slow
def test_a_deployment_whose_redis_is_frozen_is_not_ready(running: Deployment) -> None:
    redis: int = running.status()["redis"]["pid"]
    send([redis], signal.SIGSTOP)
    try:
        process = running.run("status")
        assert process.returncode == EXIT_UNREACHABLE
        assert process.stdout.startswith("degraded")
        assert "accepts connections but does not answer" in process.stdout
    finally:
        send([redis], signal.SIGCONT)
    until(lambda: well(running), "answer of the server that woke up")


@pytest.mark.slow
def test_a_supervisor_that_does_not_answer_is_reported(running: Deployment) -> None:
    supervisor = running.supervisor_pid()
    send([supervisor], signal.SIGSTOP)
    try:
        process = running.run("status")
        assert process.returncode == EXIT_UNREACHABLE
        assert f"(pid {supervisor})" in process.stdout
    finally:
        send([supervisor], signal.SIGCONT)
    until(lambda: well(running), "answer of the supervisor that woke up")


def test_a_deleted_control_socket_is_created_again(running: Deployment) -> None:
    running.state.socket("control.sock").unlink()
    until(lambda: running.state.socket("control.sock").exists(), "control socket")
    until(lambda: well(running), "answer of the supervisor")


def test_a_redis_whose_socket_was_deleted_is_restarted_with_its_data(
    running: Deployment,
) -> None:
    process = running.run("ask", "--json", "What is 6 * 7?", "--workflow", "solo", "--seconds", "1")
    before: dict[str, Any] = running.status()["redis"]
    running.state.socket("redis.sock").unlink()
    until(
        lambda: well(running) and running.status()["redis"]["restarts"] > before["restarts"],
        "the server started again",
    )
    assert not psutil.pid_exists(before["pid"])
    assert json.loads(process.stdout)["run"]["id"] in running.ok("runs", "ls")


def test_a_bus_without_any_heartbeat_is_reported_as_silent(
    deployment: Deployment, any_server: RedisProcess
) -> None:
    bus = ("--redis-url", any_server.url, "--profile", "scripted")
    process = deployment.run("status", *bus, env={"LOOPLINE_BUS__PREFIX": "deserted"})
    assert process.returncode == EXIT_FAILED
    assert process.stdout.startswith("silent")
