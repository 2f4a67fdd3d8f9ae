"""Servers and workers that any test may start."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
import redis

from loopline.bus import BusSettings
from loopline.runtime.errors import UserError
from loopline.testing import (
    RedisProcess,
    running_redis,
    running_workers,
    start_worker,
    wait_until_ready,
)
from loopline.workers.settings import RoleWorkerSettings


def test_a_server_on_a_port_keeps_its_data_and_address_after_a_kill(tmp_path: Path) -> None:
    with running_redis(tmp_path, listen="tcp", persistence="always") as server:
        url = server.url
        with redis.Redis.from_url(url) as client:
            client.set("kept", "1")
        server.kill()
        assert not server.running
        server.wait_for_writes()
        assert server.url == url
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") == b"1"


def test_a_server_that_cannot_start_is_reported_with_its_output(tmp_path: Path) -> None:
    server = RedisProcess(tmp_path, "--no-such-option", "1", persistence="none")
    with pytest.raises(UserError, match=r"did not start at unix.*Bad directive"):
        server.start()


async def test_workers_are_ready_when_the_block_starts_and_gone_after_it(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    bus = BusSettings(redis_url=any_server.url, prefix="testing")
    roles = [
        RoleWorkerSettings(bus=bus, name=f"{role}.1", roles=(role,)) for role in ("planner", "solo")
    ]
    async with running_workers(roles, tmp_path) as processes:
        assert [process.poll() for process in processes] == [None, None]
        processes[0].send_signal(signal.SIGSTOP)
    assert [process.returncode for process in processes] == [0, 0]
    assert (tmp_path / "planner.1.log").exists()


async def test_a_worker_that_dies_as_it_starts_is_reported_with_its_last_line(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    bus = BusSettings(redis_url=any_server.url, prefix="testing")
    settings = RoleWorkerSettings(bus=bus, name="lost", roles=("solo",))
    process = start_worker(settings, tmp_path, (sys.executable, "-c", "raise SystemExit('no bus')"))
    with pytest.raises(UserError, match="did not become ready: lost: no bus"):
        await wait_until_ready([settings], [process], tmp_path)
