"""A process joins successfully although the server restarts at any step."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from loopline.bench.proofs.faults.proxy import Proxy, _Link  # pyright: ignore[reportPrivateUsage]
from loopline.bus import Bus, BusSettings, BusUnavailable
from loopline.bus.connection import Connections
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from tests.conftest import quick_settings

MOST_REPLIES = 60
"""More replies than any start reads."""


class RestartingProxy(Proxy):
    """Kill the server behind the proxy at one of its replies; it comes back empty."""

    def __init__(self, server: RedisProcess, at: int) -> None:
        """`at`: number of the reply, starting at 1."""
        super().__init__(server.url)
        self._redis, self._at = server, at
        self._replies = 0
        self.restarted: asyncio.Task[None] | None = None

    async def _answer(self, reader: asyncio.StreamReader, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65_536):
                self._replies += 1
                if self._replies == self._at:
                    self._redis.kill()
                    self.restarted = asyncio.create_task(asyncio.to_thread(self._restart))
                    self.reset()
                    return
                link.client.write(chunk)
                await link.client.drain()

    def spare(self) -> None:
        """Set when the start has ended."""
        self._at = 0

    def _restart(self) -> None:
        self._redis.start()
        self._redis.flush()


@contextlib.asynccontextmanager
async def worker(settings: BusSettings) -> AsyncGenerator[Bus]:
    async with Bus(settings, standing="worker", join_seconds=30) as bus:
        yield bus


@contextlib.asynccontextmanager
async def client(settings: BusSettings) -> AsyncGenerator[Bus]:
    async with Client.connect(settings, writes=True) as client:
        yield client.bus


@pytest.mark.parametrize("joined", [worker, client])
async def test_a_process_starts_although_the_server_restarts_at_any_step(
    own_server: RedisProcess,
    monkeypatch: pytest.MonkeyPatch,
    joined: Callable[[BusSettings], AbstractAsyncContextManager[Bus]],
) -> None:
    check = Connections.check

    async def patient(connections: Connections, *, wait_seconds: float = 0.0) -> None:
        # A command reports at once, before it joins, that no server answers; that is tested
        # elsewhere.
        await check(connections, wait_seconds=30)

    monkeypatch.setattr(Connections, "check", patient)
    for at in range(1, MOST_REPLIES):
        proxy = RestartingProxy(own_server, at)
        async with proxy, joined(quick_settings(proxy.url)) as bus:
            if proxy.restarted is None:
                proxy.spare()
                assert at > 5
                break
            await proxy.restarted
            # The agreement and the settings of the shards' scripts match.
            key = bus.keys.shard(0).deployment
            for agreed_at in (bus.keys.deployment, key):
                epoch: bytes | None = await bus.redis.hget(agreed_at, "epoch")  # pyright: ignore
                assert epoch in (None, bus.agreement.epoch.encode())
    else:
        raise AssertionError("no start came to its end")
    # A server dies with the thread that started it: this thread outlives the event loop's.
    own_server.kill()
    own_server.start()


@pytest.mark.slow
async def test_a_server_that_stays_away_during_a_join_is_reported_by_name(
    own_server: RedisProcess,
) -> None:
    class Gone(RestartingProxy):
        def _restart(self) -> None:
            return

    proxy = Gone(own_server, 8)
    async with proxy:
        with pytest.raises(BusUnavailable, match="join: Redis at"):
            async with Bus(quick_settings(proxy.url)):
                pass
