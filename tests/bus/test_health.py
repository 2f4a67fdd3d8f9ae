"""A server that answers but does not let the bus work is refused at the join, with the missing
right and the remedy."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import redis

from loopline.bus import Bus, BusSettings, BusUnavailable, health, scripts
from loopline.bus.keys import Keys
from loopline.testing import RedisProcess, installed_servers, running_redis


async def joins(url: str) -> None:
    async with Bus(BusSettings(redis_url=url)):
        pass


async def refusal(url: str) -> str:
    with pytest.raises(BusUnavailable) as caught:
        await joins(url)
    return str(caught.value)


@contextlib.contextmanager
def user(server: RedisProcess, *rights: str) -> Generator[str]:
    """Return the URL of a user with only these rights."""
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "one", "reset", "on", ">pw", *rights)
        try:
            yield server.url.replace("unix://", "unix://one:pw@")
        finally:
            admin.execute_command("ACL", "DELUSER", "one")


@pytest.mark.parametrize(
    ("rights", "missing", "grant"),
    [
        ("-@scripting", "EVAL, EVALSHA", "+eval +evalsha"),
        ("-evalsha", "EVALSHA", "+evalsha"),
        ("-xautoclaim", "XAUTOCLAIM", "+xautoclaim"),
        ("-xclaim", "XCLAIM", "+xclaim"),
        ("-hincrby", "HINCRBY", "+hincrby"),
        ("-@stream", "XREADGROUP", "+xreadgroup"),
        ("-@transaction", "MULTI", "+multi"),
        ("-time", "TIME", "+time"),
    ],
)
async def test_the_error_for_a_missing_permission_names_the_command_and_how_to_grant_it(
    any_server: RedisProcess, rights: str, missing: str, grant: str
) -> None:
    with user(any_server, "~*", "+@all", rights) as url:
        message = await refusal(url)
    assert "the user 'one' may not use " in message
    assert missing in message
    assert "ACL SETUSER one " in message
    assert grant in message
    assert "pw@" not in message


async def test_the_error_for_missing_key_access_names_the_key_patterns(
    any_server: RedisProcess,
) -> None:
    with user(any_server, "~other:*", "+@all") as url:
        message = await refusal(url)
        assert "its keys" in message
        granted = re.findall(r"~\S+", message)
    with user(any_server, *granted, "+@all") as url:
        await joins(url)


async def test_granting_what_the_error_names_is_enough(any_server: RedisProcess) -> None:
    with user(any_server, "~*", "+ping") as url:
        granted = (await refusal(url)).partition("ACL SETUSER one ")[2].split()
    with user(any_server, "~*", "+ping", *granted) as url:
        await joins(url)


async def test_a_user_without_permission_for_info_can_use_the_bus(any_server: RedisProcess) -> None:
    with user(any_server, "~*", "+@all", "-info", "-config") as url:
        await joins(url)


async def test_a_cluster_node_is_recognized_without_info(tmp_path: Path) -> None:
    binary = next(iter(installed_servers().values()))
    with (
        running_redis(tmp_path, "--cluster-enabled", "yes", binary=binary) as server,
        user(server, "~*", "+@all", "-info") as url,
    ):
        assert "a node of a Redis Cluster" in await refusal(url)


@pytest.mark.parametrize("command", ["EVAL", "EVALSHA", "XAUTOCLAIM"])
async def test_a_server_with_a_renamed_command_is_refused_and_the_command_named(
    tmp_path: Path, command: str
) -> None:
    binary = next(iter(installed_servers().values()))
    with running_redis(tmp_path, "--rename-command", command, "", binary=binary) as server:
        message = await refusal(server.url)
    assert f"has no {command}" in message
    assert "renamed" in message


async def test_a_full_server_can_still_be_read(own_server: RedisProcess) -> None:
    with redis.Redis.from_url(own_server.url) as admin:
        admin.config_set("maxmemory", "1")
        await joins(own_server.url)
        admin.config_set("maxmemory", "0")


async def test_the_probe_leaves_nothing_behind(own_server: RedisProcess) -> None:
    await joins(own_server.url)
    with redis.Redis.from_url(own_server.url) as client:
        assert not client.exists(Keys("loopline", 1).probe)


async def test_a_server_at_its_client_limit_is_reported(own_server: RedisProcess) -> None:
    with redis.Redis.from_url(own_server.url) as admin:
        admin.config_set("maxclients", "1")
        message = await refusal(own_server.url)
        admin.config_set("maxclients", "100")
    assert "max number of clients" in message
    assert "maxclients" in message.partition("reached")[2]
    assert "redis_url" not in message


async def test_a_deleted_socket_file_is_reported_by_name(own_server: RedisProcess) -> None:
    own_server.socket.rename(own_server.folder / "moved")
    message = await refusal(own_server.url)
    (own_server.folder / "moved").rename(own_server.socket)
    assert "there is no such socket" in message


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with a megabyte of room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() or not shutil.which("mount") or subprocess.call(mount):
        pytest.skip("nobody may mount here: run as root on a machine of its own")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


async def test_a_server_with_a_full_disk_is_reported(small_disk: Path) -> None:
    with running_redis(small_disk, binary=next(iter(installed_servers().values()))) as server:
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory", "0")
            filling = client.pipeline(transaction=False)
            for number in range(20):
                filling.set(f"{{fill}}{number}", b"x" * 100_000, px=60_000)
            with pytest.raises(redis.ResponseError, match="No space left"):
                filling.execute()
        message = await refusal(server.url)
    assert "the disk that holds its data is full" in message
    assert "redis_url" not in message


def test_the_probe_tries_every_command_that_a_script_or_a_client_sends() -> None:
    folder = Path(scripts.__file__).parent
    names = {str(command[0]) for command in health.commands("key")}
    by_scripts = {
        " ".join(filter(None, called))
        for file in (folder / "lua").rglob("*.lua")
        for called in re.findall(r"call\('(\w+)'(?:, '((?!GROUP')[A-Z]+)')?", file.read_text())
    }
    assert len(by_scripts) > 25
    assert by_scripts <= names
    source = "".join(file.read_text() for file in folder.glob("*.py"))
    sent = set(re.findall(r"\b(?:redis|blocking|pipe|client)\.(\w+)\(", source))
    by_clients = {name.upper().replace("DELETE", "DEL") for name in sent} - {
        "PING", "INFO", "CONFIG_GET", "PIPELINE", "EXECUTE", "EXECUTE_COMMAND", "ACLOSE",
    }  # fmt: skip
    assert len(by_clients) > 15
    assert by_clients <= names
