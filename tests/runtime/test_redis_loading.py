"""A Redis that takes long to load its append-only file."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import psutil
import pytest
import redis

from loopline.runtime.config.sections import RedisServerSettings
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.redis import binary as redis_binary
from loopline.runtime.redis.server import RedisServer
from tests.runtime.conftest import LIMIT, Deployment, until

pytestmark = pytest.mark.system

KEYS = 4_096
"""A loading server handles requests after each 1,024 keys."""


async def filled(state: StateDirectory) -> None:
    server = RedisServer(state, RedisServerSettings())
    await server.start()
    with redis.Redis.from_url(server.url) as connection:
        pipeline = connection.pipeline(transaction=False)
        for number in range(KEYS):
            pipeline.set(f"key-{number}", number)
        pipeline.execute()
    await server.stop()


def slow(folder: Path, microseconds: int) -> str:
    """A search path with a server that takes `microseconds` to load each key."""
    script = folder / "redis-server"
    server = redis_binary.choose().path
    script.write_text(f'#!/bin/sh\nexec "{server}" "$@" --key-load-delay {microseconds}\n')
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


async def test_a_loading_server_may_take_longer_than_the_start_limit(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.state.create()
    await filled(deployment.state)
    monkeypatch.setenv("PATH", slow(tmp_path, 2_000))
    settings = RedisServerSettings(start_seconds=5)
    server = RedisServer(deployment.state, settings)
    await server.start()
    try:
        assert server.started_in > settings.start_seconds
        with redis.Redis.from_url(server.url) as connection:
            assert connection.dbsize() == KEYS
    finally:
        await server.stop()


def test_ctrl_c_stops_an_up_that_waits_for_redis(deployment: Deployment, tmp_path: Path) -> None:
    state = deployment.state
    state.create()
    asyncio.run(filled(state))
    deployment.environ["PATH"] = slow(tmp_path, 2_000)
    up = deployment.start("up", "--profile", "scripted")

    def pid() -> int | None:
        """The pid of the loading server."""
        server_pid = int(json.loads((state.redis / "server.json").read_text())["pid"])
        return server_pid if psutil.pid_exists(server_pid) else None

    server = until(pid, "server that reads")
    up.send_signal(signal.SIGINT)
    output, _ = up.communicate(timeout=LIMIT)
    assert up.returncode == 0, output
    assert "redis ready" not in output
    assert not psutil.pid_exists(server)
