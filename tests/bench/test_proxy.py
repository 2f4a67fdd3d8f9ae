"""The proxy that breaks connections: the effect of each attack on a client of Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import pytest

from loopline.bench.proofs.faults.proxy import Proxy
from loopline.testing import RedisProcess, installed_servers, running_redis

VALUE = "x" * 1000
REPLY = f"$1000\r\n{VALUE}\r\n".encode()


class Plain:
    """A client that passes on every error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self) -> None:
        self.writer.write(f"ECHO {VALUE}\r\n".encode())

    async def whole(self) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.readexactly(len(REPLY))

    async def ask(self) -> bytes:
        self.send()
        return await self.whole()

    async def rest(self) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.read()


Connect = Callable[[], Awaitable[Plain]]


@pytest.fixture
async def proxy(any_server: RedisProcess) -> AsyncIterator[Proxy]:
    async with Proxy(any_server.url) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Connect]:
    """Opens a new connection at each call."""
    connections: list[Plain] = []

    async def connect() -> Plain:
        parts = urlsplit(proxy.url)
        connections.append(Plain(*await asyncio.open_connection(parts.hostname, parts.port)))
        return connections[-1]

    yield connect
    for plain in connections:
        plain.writer.transport.abort()


async def test_without_faults_the_proxy_changes_nothing(proxy: Proxy, client: Connect) -> None:
    plain = await client()
    assert await plain.ask() == REPLY
    assert proxy.connections == proxy.accepted == 1


async def test_a_reset_arrives_as_a_reset_and_not_as_an_end(proxy: Proxy, client: Connect) -> None:
    plain = await client()
    await plain.ask()
    assert proxy.reset() == 1
    with pytest.raises(ConnectionResetError):
        await plain.rest()


async def test_only_connections_without_a_waiting_reader_are_idle(
    proxy: Proxy, client: Connect
) -> None:
    idle, busy = await client(), await client()
    await idle.ask()
    proxy.delay(0.05)
    busy.send()
    await asyncio.sleep(0.02)
    assert proxy.reset(idle_only=True) == 1
    assert await busy.whole() == REPLY
    with pytest.raises(ConnectionResetError):
        await idle.rest()


async def test_a_torn_reply_arrives_in_part_and_then_ends(proxy: Proxy, client: Connect) -> None:
    plain, next_one = await client(), await client()
    proxy.tear()
    plain.send()
    assert await plain.rest() == REPLY[: len(REPLY) // 2]
    assert proxy.torn == 1
    assert await next_one.ask() == REPLY


async def test_a_half_closed_connection_ends_for_its_reader(proxy: Proxy, client: Connect) -> None:
    plain = await client()
    await plain.ask()
    assert proxy.half_close() == 1
    assert await plain.rest() == b""
    plain.send()  # the connection is still accepted: no reset follows at once
    await plain.writer.drain()


async def test_a_partition_blocks_everything_until_healed(proxy: Proxy, client: Connect) -> None:
    plain = await client()
    await plain.ask()
    proxy.partition()
    plain.send()
    newcomer = await client()
    newcomer.send()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await plain.reader.read(1)
    proxy.heal()
    assert await plain.whole() == await newcomer.whole() == REPLY


async def test_new_connections_are_refused_and_old_ones_stay(proxy: Proxy, client: Connect) -> None:
    plain = await client()
    await plain.ask()
    await proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await client()
    assert await plain.ask() == REPLY
    url = proxy.url
    await proxy.admit()
    assert proxy.url == url
    assert await (await client()).ask() == REPLY


async def test_new_connections_lead_to_the_new_server(
    proxy: Proxy, client: Connect, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old = await client()
    old.writer.write(b"CONFIG GET dir\r\n")
    here = await old.reader.read(4096)
    binary = next(iter(installed_servers().values()))
    with running_redis(tmp_path_factory.mktemp("r"), binary=binary) as server:
        proxy.set_target(server.url)
        new = await client()
        new.writer.write(b"CONFIG GET dir\r\n")
        there = await new.reader.read(4096)
        assert here != there
        old.writer.write(b"CONFIG GET dir\r\n")
        assert await old.reader.read(4096) == here
