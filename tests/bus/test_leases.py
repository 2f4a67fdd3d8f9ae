"""Leases: renewed outside the work, lost by a sleeping process, and never regained by renewal."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time

import pytest

from loopline.bus import (
    Bus,
    BusSettings,
    Consumer,
    Delivery,
    Finish,
    LeaseLost,
    StepCommit,
    scripts,
)
from loopline.bus.connection import retry_during_outage
from loopline.bus.keys import GROUP
from loopline.bus.lease import Lease
from loopline.testing import RedisProcess
from tests.bus.payloads import Note, admit
from tests.bus.serving import ended, finishing, pending, serving, until
from tests.bus.worker_process import worker_process
from tests.conftest import quick_settings


async def hold_then_finish(delivery: Delivery, leases: float = 3.0) -> None:
    """A worker that works for longer than its lease."""
    bus = delivery.bus
    until_then = time.monotonic() + leases * bus.settings.lease_seconds
    await until(lambda: time.monotonic() > until_then, "the work's length")
    await finishing(delivery)


async def test_a_renewed_lease_keeps_its_delivery_count_and_its_owner(bus: Bus) -> None:
    counts: list[int] = []

    async def handler(delivery: Delivery) -> None:
        counts.append(delivery.lease.count)
        await hold_then_finish(delivery)

    async with serving(bus, ["planner"], handler), serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await until(lambda: bus.keeper.count == 1, "the lease is held")
        shard = bus.keys.shard_of(run_id)
        await until(lambda: _renewed(bus, shard.work("planner")), "a renewal")
        await ended(bus, run_id)
    assert counts == [1], "nobody else was given the message while its holder was at work"


async def _renewed(bus: Bus, stream: str) -> bool:
    """A message held for the first time, longer than a renewal interval and not idle that long."""
    [pending_entry] = await bus.redis.xpending_range(stream, GROUP, "-", "+", 10)
    age = time.time() * 1000 - int(pending_entry["message_id"].split(b"-")[0])
    interval = bus.settings.lease_ms / 2
    return (
        pending_entry["times_delivered"] == 1
        and age > 2 * interval
        and pending_entry["time_since_delivered"] < interval
    )


def _busy_python(seconds: float) -> None:
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1


def _busy_c_code(seconds: float) -> None:
    """Run compiled code without a pause that does not hold Python's lock."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"work", b"salt", 400_000)


def _busy_c_code_with_the_lock(seconds: float) -> None:
    """Run compiled code that holds Python's lock for tens of milliseconds at a time."""
    end = time.monotonic() + seconds
    numbers = [hash(str(number)) for number in range(50_000)]
    while time.monotonic() < end:
        sorted(numbers)


@pytest.mark.parametrize("work", [_busy_python, _busy_c_code, _busy_c_code_with_the_lock])
async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(
    any_server: RedisProcess, work: object
) -> None:
    settings = quick_settings(any_server.url, lease_seconds=1.0)
    assert callable(work)
    async with Bus(settings) as bus:
        bus.registry.register("note", Note)
        rival = asyncio.Event()
        holding = asyncio.Event()

        async def blocking(delivery: Delivery) -> None:
            holding.set()
            await rival.wait()
            work(2 * settings.lease_seconds)
            await delivery.commit(StepCommit(b'"busy"', finish=Finish("answered", "busy")))

        async with serving(bus, ["planner"], blocking):
            run_id = await admit(bus)
            await holding.wait()
            # The other process would take the message over as soon as its lease expires.
            with worker_process(settings) as second_worker:
                await second_worker.heard("ready")
                rival.set()
                await ended(bus, run_id)
        assert (await bus.run_state(run_id)).answer == "busy"


async def test_a_stopped_process_loses_its_lease_and_cannot_commit_after_it_resumes(
    bus: Bus,
) -> None:
    """Only the bus protects the journal from a worker that ignores every signal."""
    with worker_process(bus.settings, behaviour="stubborn") as paused:
        await paused.heard("ready")
        run_id = await admit(bus)
        await paused.heard("took")
        paused.send(signal.SIGSTOP)
        stopped = time.monotonic()
        async with serving(bus, ["planner"], finishing):
            await ended(bus, run_id)
        took = time.monotonic() - stopped
        assert took <= bus.settings.lease_seconds + 1.0
        paused.send(signal.SIGCONT)
        paused.tell()
        assert await paused.heard("refused") == ["LeaseLost"]
    state = await bus.run_state(run_id)
    assert state.steps == (b'"done"',)
    assert await bus.queue_lengths(["planner"]) == {"planner": 0}


async def test_a_renewal_after_a_takeover_is_refused_and_changes_nothing(bus: Bus) -> None:
    run_id = await admit(bus)
    shard = bus.keys.shard_of(run_id)
    stream, run = shard.work("planner"), shard.run(run_id)
    await scripts.call(bus.redis, "group", [stream], [GROUP])
    [[_, [(entry, _)]]] = await bus.redis.xreadgroup(GROUP, "first", {stream: ">"})
    args = [GROUP, "first", entry, 1]
    assert await scripts.call(bus.redis, "renew", [stream, run], args) == [1]
    await bus.redis.xclaim(stream, GROUP, "second", 0, [entry])
    assert await scripts.call(bus.redis, "renew", [stream, run], args) == [0]
    # This is also true when it returned to the first: the count distinguishes the deliveries.
    await bus.redis.xclaim(stream, GROUP, "first", 0, [entry])
    assert await scripts.call(bus.redis, "renew", [stream, run], args) == [0]
    assert await scripts.call(bus.redis, "renew", [stream, run], [GROUP, "first", entry, 3]) == [1]
    [pending_entry] = await bus.redis.xpending_range(stream, GROUP, "-", "+", 10)
    assert (pending_entry["consumer"], pending_entry["times_delivered"]) == (b"first", 3)


async def test_a_handler_whose_lease_was_taken_over_is_cancelled(bus: Bus) -> None:
    cancelled = asyncio.Event()
    takeover = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        if delivery.lease.count > 1:
            await finishing(delivery)
            return
        stream, entry = delivery.lease.stream, delivery.lease.entry
        await bus.redis.xclaim(stream, GROUP, "thief", 0, [entry])
        takeover.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await asyncio.wait_for(takeover.wait(), 10)
        await asyncio.wait_for(cancelled.wait(), 10)
        await ended(bus, run_id)  # the thief is silent, so its lease also ends


async def test_leases_survive_a_redis_outage_shorter_than_their_length(
    own_server: RedisProcess,
) -> None:
    settings = quick_settings(own_server.url, lease_seconds=3.0)
    async with Bus(settings) as bus:
        bus.registry.register("note", Note)
        counts: list[int] = []
        go_on = asyncio.Event()

        async def handler(delivery: Delivery) -> None:
            counts.append(delivery.lease.count)
            await go_on.wait()
            await finishing(delivery)

        async with serving(bus, ["planner"], handler):
            run_id = await admit(bus)
            await until(lambda: bool(counts), "the delivery")
            own_server.kill()
            own_server.start()
            await until(lambda: _touched(bus, run_id), "a renewal after the restart")
            go_on.set()
            await ended(bus, run_id)
    assert counts == [1]


async def _touched(bus: Bus, run_id: str) -> bool:
    shard = bus.keys.shard_of(run_id)
    [pending_entry] = await retry_during_outage(
        "test", lambda: bus.redis.xpending_range(shard.work("planner"), GROUP, "-", "+", 10)
    )
    age = time.time() * 1000 - int(pending_entry["message_id"].split(b"-")[0])
    return pending_entry["time_since_delivered"] < age - 500


async def test_the_lease_keeper_survives_a_holder_whose_event_loop_is_gone(bus: Bus) -> None:
    """One failing callback must not let other leases expire."""
    run_id = await admit(bus)
    shard = bus.keys.shard_of(run_id)

    def broken(_: object) -> None:
        raise RuntimeError("Event loop is closed")

    bus.keeper.hold(Lease(shard.work("planner"), "1-1", "gone", 1), shard.run(run_id), broken)
    await until(lambda: bus.keeper.count == 0, "the verdict on a lease that nobody holds")
    counts: list[int] = []

    async def handler(delivery: Delivery) -> None:
        counts.append(delivery.lease.count)
        await hold_then_finish(delivery)

    async with serving(bus, ["planner"], handler):
        await ended(bus, run_id)
    assert counts == [1]


async def test_a_commit_after_a_takeover_is_refused_in_the_same_process(bus: Bus) -> None:
    refused: list[type[Exception]] = []

    async def handler(delivery: Delivery) -> None:
        if delivery.lease.count == 1:
            lease = delivery.lease
            await bus.redis.xclaim(lease.stream, GROUP, delivery.lease.consumer, 0, [lease.entry])
            try:
                await finishing(delivery)
            except LeaseLost as error:
                refused.append(type(error))
                raise
        await finishing(delivery)

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    assert refused == [LeaseLost]
    assert await pending(bus, "planner") == 0


def test_a_consumer_never_exceeds_its_places(settings: BusSettings) -> None:
    """Reading and sweeping together never hold more messages than there are places."""

    async def run() -> None:
        async with Bus(settings) as bus:
            bus.registry.register("note", Note)
            at_once: list[int] = []
            working = 0

            async def handler(delivery: Delivery) -> None:
                nonlocal working
                working += 1
                at_once.append(working)
                await asyncio.sleep(0)
                working -= 1
                await finishing(delivery)

            consumer = Consumer(bus, ["planner", "slm"], handler, concurrency=3)
            task = asyncio.create_task(consumer.run())
            runs = [await admit(bus, name) for name in ("planner", "slm") * 30]
            for run_id in runs:
                await ended(bus, run_id)
            consumer.drain()
            await task
            assert max(at_once) <= 3

    asyncio.run(run())
