"""Deliveries that count as failures of a message: only those that killed their worker, and none
that a worker lost, returned, or never saw."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from loopline.bus import Bus, Consumer, Delivery
from loopline.bus.keys import GROUP
from loopline.testing import RedisProcess
from tests.bus.payloads import Note, admit
from tests.bus.serving import ended, finishing, letters, serving, until
from tests.bus.worker_process import worker_process
from tests.conftest import quick_settings


@asynccontextmanager
async def deployment(server: RedisProcess, **changes: object) -> AsyncGenerator[Bus]:
    """A separate deployment for one test: all its processes share the same settings."""
    async with Bus(quick_settings(server.url, **changes)) as bus:
        bus.registry.register("note", Note)
        yield bus


@pytest.fixture
async def bus(shared_server: RedisProcess) -> AsyncGenerator[Bus]:
    async with deployment(shared_server, max_attempts=2) as bus:
        yield bus


async def test_deliveries_that_no_worker_received_do_not_count_as_failures(bus: Bus) -> None:
    """The reply of a read or of a sweep can be lost with its connection, but Redis still counts the
    delivery."""
    counts: list[int] = []

    async def handler(delivery: Delivery) -> None:
        counts.append(delivery.lease.count)
        await finishing(delivery)

    async with serving(bus, ["slm"], finishing):
        run_id = await admit(bus)
        stream = bus.keys.shard_of(run_id).work("planner")
    await bus.redis.xgroup_create(stream, GROUP, "0")
    await bus.redis.xreadgroup(GROUP, "cut-off", {stream: ">"})
    [pending_entry] = await bus.redis.xpending_range(stream, GROUP, "-", "+", 1)
    for _ in range(9):
        await bus.redis.xclaim(stream, GROUP, "cut-off", 0, [pending_entry["message_id"]])
    async with serving(bus, ["planner"], handler):
        await ended(bus, run_id)
    assert counts == [11]
    assert await letters(bus) == []


async def test_abandoned_work_moves_to_another_worker_at_once_and_never_counts(
    shared_server: RedisProcess,
) -> None:
    """Five workers are told to abandon it; the same number of failures would make it a dead
    letter."""
    async with deployment(shared_server, max_attempts=1, lease_seconds=30.0) as bus:
        run_id = await admit(bus)
        for count in range(1, 6):
            arrival = asyncio.Event()

            async def hold(
                delivery: Delivery, n: int = count, is_in: asyncio.Event = arrival
            ) -> None:
                assert delivery.lease.count == n
                is_in.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(Consumer(bus, ["planner"], hold).run())
            async with asyncio.timeout(10):  # much less than its lease
                await arrival.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async with serving(bus, ["planner"], finishing):
            await ended(bus, run_id, within=10)
        assert await letters(bus) == []


async def test_killing_a_draining_worker_does_not_count_against_its_work(
    shared_server: RedisProcess,
) -> None:
    """An operator who kills a draining worker has lost patience."""
    async with deployment(shared_server, max_attempts=1) as bus:
        run_id = await admit(bus)
        shard = bus.keys.shard_of(run_id)
        for count in range(1, 3):
            with worker_process(bus.settings, behaviour="hold") as worker:
                entry, number, _ = await worker.heard("took")
                assert int(number) == count
                worker.send(signal.SIGTERM)

                async def excused(entry: str = entry) -> bool:
                    value = await bus.redis.hget(shard.begun("planner"), entry)  # pyright: ignore
                    return value == b""

                await until(excused, "it is excused")
                worker.send(signal.SIGKILL)
                await worker.gone()
        async with serving(bus, ["planner"], finishing):
            await ended(bus, run_id)
        assert await letters(bus) == []


async def test_a_thawed_worker_withdraws_the_failure_counted_against_its_message(bus: Bus) -> None:
    run_id = await admit(bus)
    begun = bus.keys.shard_of(run_id).begun("planner")
    with worker_process(bus.settings, behaviour="hold") as first:
        entry = (await first.heard("took"))[0]
        first.send(signal.SIGSTOP)
        with worker_process(bus.settings, behaviour="hold") as second:
            assert (await second.heard("took"))[1] == "2"
            assert await bus.redis.hget(begun, entry) == b"1 2"  # pyright: ignore
            first.send(signal.SIGCONT)
            await first.heard("cancelled")

            async def forgiven() -> bool:
                return await bus.redis.hget(begun, entry) == b"2"  # pyright: ignore

            await until(forgiven, "the first handling does not count")
            first.send(signal.SIGKILL)  # otherwise it would take the message over again
            await first.gone()
            second.send(signal.SIGSTOP)
            async with serving(bus, ["planner"], finishing):
                await ended(bus, run_id)
    assert await letters(bus) == []
    assert await bus.redis.exists(begun) == 0
