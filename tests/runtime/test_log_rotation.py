"""Log files of a deployment are rotated while its processes keep writing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import redis

from loopline.runtime.observe.log_files import RotatingLog
from loopline.runtime.supervise.child_output import copy_until_dead, start_with_output
from tests.runtime.conftest import Deployment, until

pytestmark = pytest.mark.timeout(400)


def test_logs_are_rotated_while_the_deployment_runs(deployment: Deployment) -> None:
    deployment.up("supervisor.log_bytes=10000", "supervisor.log_files=2", kinds=("slm",))
    logs = deployment.state.logs
    running = deployment.state.running()
    assert running is not None
    with redis.Redis.from_url(running.redis_url) as connection:
        connection.config_set("loglevel", "debug")
        for _ in range(200):
            with redis.Redis.from_url(running.redis_url) as other:
                other.ping()
        connection.config_set("loglevel", "notice")
        until((logs / "redis.log.1").exists, "rotation of redis.log")
        before = (logs / "redis.log").stat().st_size
        connection.bgrewriteaof()
        until(lambda: (logs / "redis.log").stat().st_size > before, "line in the new redis.log")
    with deployment.state.supervisor_log.open("ab") as log:
        log.write(b"x" * 20_000 + b"\n")
    until((logs / "supervisor.log.1").exists, "rotation of supervisor.log")
    (worker,) = deployment.workers("slm")
    os.kill(worker["pid"], signal.SIGKILL)
    until(lambda: worker["name"] in deployment.state.supervisor_log.read_text(), "its death")
    lines = deployment.state.supervisor_log.read_text().splitlines()
    assert all(json.loads(line) for line in lines)
    assert (logs / "supervisor.log.1").read_bytes().endswith(b"x" * 20_000 + b"\n")


def contents(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.iterdir()]


async def test_the_output_of_a_child_is_rotated_while_it_runs_and_no_line_is_lost(
    tmp_path: Path,
) -> None:
    log = RotatingLog(tmp_path / "output.log", limit=2_000, files=100)

    def start(writing: int) -> Coroutine[Any, Any, asyncio.subprocess.Process]:
        printing = "for number in range(3000): print('line', number)"
        return asyncio.create_subprocess_exec(sys.executable, "-c", printing, stdout=writing)

    process, output = await start_with_output(start)
    with output:
        assert await copy_until_dead(process, output, log) == 0
    log.close()
    files = contents(tmp_path)
    assert len(files) > 10
    assert sorted(line for text in files for line in text.splitlines()) == sorted(
        f"line {number}" for number in range(3000)
    )
