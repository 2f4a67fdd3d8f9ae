"""The embedded Redis: private, durable, one per state directory, and never an orphan."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from loopline.runtime.config.sections import RedisServerSettings
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import UserError
from loopline.runtime.redis import binary as redis_binary
from loopline.runtime.redis.server import RedisServer
from tests.runtime.conftest import LIMIT, until

pytestmark = pytest.mark.system


@pytest.fixture
def state() -> Iterator[StateDirectory]:
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        state = StateDirectory(Path(folder))
        state.create()
        yield state


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=5)


async def test_acknowledged_writes_survive_sigkill_and_the_address_stays_the_same(
    state: StateDirectory,
) -> None:
    server = RedisServer(state, RedisServerSettings())
    await server.start()
    url = server.url
    with client(url) as connection:
        connection.set("kept", "yes")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert await server.wait() == -signal.SIGKILL
    await server.start()
    try:
        assert server.url == url
        with client(url) as connection:
            assert connection.get("kept") == b"yes"
    finally:
        await server.stop()


async def test_it_evicts_nothing_appends_everything_and_writes_as_configured(
    state: StateDirectory,
) -> None:
    server = RedisServer(state, RedisServerSettings(appendfsync="always", maxmemory_mb=64))
    await server.start()
    try:
        with client(server.url) as connection:
            info = connection.config_get("*")
            assert isinstance(info, dict)
            assert info["maxmemory-policy"] == "noeviction"
            assert info["appendonly"] == "yes"
            assert info["appendfsync"] == "always"
            assert info["maxmemory"] == str(64 * 1024**2)
    finally:
        await server.stop()


async def test_access_requires_the_password_which_is_on_no_command_line(
    state: StateDirectory,
) -> None:
    server = RedisServer(state, RedisServerSettings())
    await server.start()
    try:
        password = server.url.split(":")[2].partition("@")[0]
        assert len(password) >= 24
        bare = server.url.replace(f":{password}@", "")
        with (
            client(bare) as connection,
            pytest.raises(redis.AuthenticationError),
        ):
            connection.ping()
        assert server.pid is not None
        assert password not in " ".join(psutil.Process(server.pid).cmdline())
        config = state.redis / "redis.conf"
        assert password in config.read_text()
        assert config.stat().st_mode & 0o077 == 0
    finally:
        await server.stop()


async def test_it_can_listen_on_loopback_on_a_free_port(state: StateDirectory) -> None:
    server = RedisServer(state, RedisServerSettings(listen="tcp"))
    await server.start()
    try:
        assert "@127.0.0.1:" in server.url
        with client(server.url) as connection:
            assert connection.ping()
    finally:
        await server.stop()


async def test_a_port_in_use_is_one_clear_error(state: StateDirectory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = RedisServer(state, RedisServerSettings(listen="tcp", port=port))
        with pytest.raises(UserError, match=f"port {port}") as caught:
            await server.start()
    assert "redis.port" in str(caught.value)


async def test_a_path_too_long_for_a_socket_gets_a_short_private_one(
    state: StateDirectory,
) -> None:
    deep = StateDirectory(state.path / ("long" * 30))
    deep.create()
    server = RedisServer(deep, RedisServerSettings())
    await server.start()
    try:
        assert len(str(server.socket_path)) < 100
        assert server.socket_path.parent.stat().st_mode & 0o077 == 0
        with client(server.url) as connection:
            assert connection.ping()
    finally:
        await server.stop()
        server.socket_path.parent.rmdir()


async def test_a_path_with_spaces_and_special_characters_works(state: StateDirectory) -> None:
    odd = StateDirectory(state.path / 'a b"c%20#?é')
    odd.create()
    server = RedisServer(odd, RedisServerSettings())
    await server.start()
    try:
        with client(server.url) as connection:
            assert connection.ping()
    finally:
        await server.stop()


async def test_an_orphaned_server_is_stopped_before_a_new_one_uses_its_data(
    state: StateDirectory,
) -> None:
    first = RedisServer(state, RedisServerSettings())
    await first.start()
    with client(first.url) as connection:
        connection.set("kept", "yes")
    second = RedisServer(state, RedisServerSettings())
    await second.start()
    try:
        assert await first.wait() is not None
        with client(second.url) as connection:
            assert connection.get("kept") == b"yes"
    finally:
        await second.stop()


async def test_an_orphaned_server_is_recognized_through_a_symbolic_link(
    state: StateDirectory, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(state.path)
    linked = StateDirectory(tmp_path / "link")
    first = RedisServer(linked, RedisServerSettings())
    await first.start()
    second = RedisServer(linked, RedisServerSettings())
    await second.start()
    try:
        async with asyncio.timeout(LIMIT):
            assert await first.wait() is not None
    finally:
        await second.stop()
        await first.stop()


async def test_the_error_for_a_server_that_cannot_start_names_its_log(
    state: StateDirectory,
) -> None:
    (state.redis / "appendonlydir").write_text("not a directory")
    server = RedisServer(state, RedisServerSettings())
    with pytest.raises(UserError, match="ended at once with code") as caught:
        await server.start()
    assert "redis.log" in str(caught.value)


def test_it_dies_with_its_supervisor_even_if_that_is_killed(state: StateDirectory) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from loopline.runtime.config.sections import RedisServerSettings\n"
        "from loopline.runtime.redis.server import RedisServer\n"
        "from loopline.runtime.config.state import StateDirectory\n"
        "async def main():\n"
        "    server = RedisServer(StateDirectory(pathlib.Path(sys.argv[1])),"
        " RedisServerSettings())\n"
        "    await server.start()\n"
        "    print(server.pid, flush=True)\n"
        "    await server.wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(state.path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
    until(lambda: not psutil.pid_exists(pid), "end of the orphaned server")


def test_a_server_on_the_path_is_preferred_to_the_packaged_one(tmp_path: Path) -> None:
    packaged = redis_binary.packaged_server()
    assert packaged is not None
    assert redis_binary.choose(search_path=str(tmp_path)).path == packaged
    (tmp_path / "redis-server").symlink_to(packaged)
    assert redis_binary.choose(search_path=str(tmp_path)).path == tmp_path / "redis-server"


def test_a_server_below_the_minimum_version_is_skipped(tmp_path: Path) -> None:
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=00000000:0'\n")
    old.chmod(0o755)
    assert redis_binary.choose(search_path=str(tmp_path)).path == redis_binary.packaged_server()


def test_data_that_no_available_server_can_read_is_refused(tmp_path: Path) -> None:
    binary = redis_binary.choose(("valkey", (9, 1, 2)), search_path=str(tmp_path))
    assert binary.flavour == "valkey"
    with pytest.raises(UserError, match="written by redis 99") as caught:
        redis_binary.choose(("redis", (99, 0)), search_path=str(tmp_path))
    assert "LOOPLINE_STATE" in str(caught.value)
