"""The bus's connections: cancellation is never lost, waiters are served in order, and a connection
that the server closed is reopened."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import DataError

from loopline.bus import Bus, connection_pool
from loopline.testing import RedisProcess


async def test_a_task_in_constant_contact_with_redis_can_be_cancelled(
    bus: Bus,
) -> None:
    """The cancellation may come while a command is written, awaited, or between two."""
    source = random.Random(5)

    async def talk() -> None:
        while True:
            await bus.redis.get("nothing")

    for _ in range(300):
        task = asyncio.create_task(talk())
        for _ in range(source.randint(0, 40)):
            await asyncio.sleep(0)
        task.cancel()
        _, pending = await asyncio.wait({task}, timeout=5)
        assert not pending


async def test_more_callers_than_connections_are_all_served(shared_server: RedisProcess) -> None:
    client = Redis.from_pool(
        connection_pool.pool(
            shared_server.url, max_connections=2, wait_seconds=30, socket_timeout=10
        )
    )
    counts = [0] * 8

    async def call(index: int) -> None:
        for _ in range(50):
            await client.ping()  # pyright: ignore[reportGeneralTypeIssues]
            counts[index] += 1
            # A caller that returns at once queues behind the waiting ones.
            assert max(counts) - min(counts) <= 3

    await asyncio.gather(*(call(index) for index in range(len(counts))))
    await client.aclose(close_connection_pool=True)


async def test_a_caller_that_gets_no_connection_in_time_receives_an_error(
    shared_server: RedisProcess,
) -> None:
    client = Redis.from_pool(
        connection_pool.pool(
            shared_server.url, max_connections=1, wait_seconds=0.05, socket_timeout=10
        )
    )
    async with client.client() as holder:
        await holder.get("nothing")
        with pytest.raises(RedisConnectionError, match="all 1 connections in use"):
            await client.get("nothing")
    assert await client.get("nothing") is None
    await client.aclose(close_connection_pool=True)


async def test_a_connection_that_the_server_closed_is_reopened(
    shared_server: RedisProcess,
) -> None:
    client = Redis.from_pool(
        connection_pool.pool(
            shared_server.url, max_connections=1, wait_seconds=1, socket_timeout=10
        )
    )
    number = await client.client_id()
    async with Redis.from_url(shared_server.url) as admin:
        await admin.client_kill_filter(_id=str(number))
    # This end learns of it once the loop has read the end of the stream; until then one command in
    # flight would fail and be repeated.
    with contextlib.suppress(RedisConnectionError):
        await client.client_id()
    assert await client.client_id() != number
    await client.aclose(close_connection_pool=True)


async def test_an_argument_of_a_wrong_type_is_refused_before_anything_is_sent(bus: Bus) -> None:
    with pytest.raises(DataError):
        await bus.redis.execute_command("SET", "key", object())
    assert await bus.redis.get("key") is None
