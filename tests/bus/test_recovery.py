"""A dead worker's message is taken over; a message that kills its workers is stopped."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from loopline.bus import Bus, Delivery, Retry, scripts
from loopline.bus.keys import GROUP
from tests.bus.payloads import admit
from tests.bus.serving import ended, finishing, letters, pending, serving, until
from tests.bus.worker_process import worker_process


async def test_a_killed_worker_s_message_is_taken_over_within_its_lease_plus_a_second(
    bus: Bus,
) -> None:
    with worker_process(bus.settings, behaviour="hold") as doomed:
        await doomed.heard("ready")
        async with serving(bus, ["slm"], finishing):  # another worker, for another stream
            run_id = await admit(bus)
            await doomed.heard("took")
            async with serving(bus, ["planner"], finishing):
                doomed.send(signal.SIGKILL)
                killed = time.monotonic()
                await ended(bus, run_id)
                took = time.monotonic() - killed
    assert took <= bus.settings.lease_seconds + 1.0
    assert (await bus.run_state(run_id)).steps == (b'"done"',)


async def test_a_worker_that_renewed_too_late_keeps_its_unclaimed_work(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the worker would restart its own work and pay for its calls again."""
    monkeypatch.setattr(bus.keeper, "_renew_due", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]
    begun: list[int] = []
    may_end = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        begun.append(delivery.lease.count)
        await may_end.wait()
        await finishing(delivery)

    async with serving(bus, ["planner"], handler, places=2):
        run_id = await admit(bus)
        stream = bus.keys.shard_of(run_id).work("planner")
        await until(lambda: len(begun) == 1, "the work")

        async def renewed() -> bool:
            """Its lease had expired and is fresh again."""
            (pending_entry,) = await bus.redis.xpending_range(stream, GROUP, "-", "+", 1)
            idle.append(pending_entry["time_since_delivered"])
            return max(idle) > 1000 * bus.settings.lease_seconds * 0.9 and idle[-1] < max(idle)

        idle: list[int] = []
        await until(renewed, "a sweep that renews")
        may_end.set()
        await ended(bus, run_id)
    assert begun == [1]


async def test_a_worker_that_could_not_renew_loses_its_work_to_another(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus.keeper, "_renew_due", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]
    begun: list[int] = []
    late = asyncio.Event()

    async def slow(delivery: Delivery) -> None:
        begun.append(delivery.lease.count)
        await late.wait()
        await finishing(delivery)

    async with serving(bus, ["planner"], slow, places=1):  # full: it does not sweep
        run_id = await admit(bus)
        await until(lambda: len(begun) == 1, "the work")
        async with Bus(bus.settings, bus.registry) as second_bus:
            async with serving(second_bus, ["planner"], finishing):
                await ended(bus, run_id)
            late.set()
    assert begun == [1]
    assert (await bus.run_state(run_id)).steps == (b'"done"',)


async def test_the_scan_reaches_entries_behind_many_live_ones(bus: Bus) -> None:
    """XAUTOCLAIM checks ten times its count: a scan that always starts at the beginning never
    arrives."""
    run_id = await admit(bus, "other")
    stream = bus.keys.shard_of(run_id).work("planner")
    counts: list[int] = []

    async def handler(delivery: Delivery) -> None:
        counts.append(delivery.lease.count)
        await finishing(delivery)

    async with serving(bus, ["planner"], handler, places=1) as consumer:
        await until(lambda: _has_group(bus, stream), "the group")
        # 12,000 entries of a live worker, then the one of a dead worker.
        body = (await bus.redis.xrange(bus.keys.shard_of(run_id).work("other")))[0][1][b"e"]
        consumer.drain()
    pipe = bus.redis.pipeline(transaction=False)
    for _ in range(12_000):
        pipe.xadd(stream, {"e": b"held"})
    pipe.xadd(stream, {"e": body})
    ids = (await pipe.execute())[-12_001:]
    await bus.redis.xreadgroup(GROUP, "holder", {stream: ">"}, count=20_000)
    for start in range(0, 12_000, 6_000):
        await bus.redis.xclaim(
            stream, GROUP, "holder", 0, ids[start : start + 6_000], idle=0, justid=True
        )
    await bus.redis.xclaim(stream, GROUP, "dead", 0, ids[-1:], idle=60_000, justid=True)

    async def stay_alive() -> None:
        while True:
            for start in range(0, 12_000, 6_000):
                await bus.redis.xclaim(
                    stream, GROUP, "holder", 0, ids[start : start + 6_000], justid=True
                )
                await asyncio.sleep(0.02)

    holder = asyncio.create_task(stay_alive())
    async with serving(bus, ["planner"], handler, places=1):
        await ended(bus, run_id)
    holder.cancel()
    assert counts == [2]
    await bus.redis.delete(stream)


async def _has_group(bus: Bus, stream: str) -> bool:
    return bool(await bus.redis.exists(stream))


async def test_a_full_worker_leaves_the_sweep_to_one_with_a_free_place(bus: Bus) -> None:
    """The worker still ends runs whose deadline has passed."""
    release = asyncio.Event()
    entries: list[str] = []

    async def slow(delivery: Delivery) -> None:
        await release.wait()
        await finishing(delivery)

    async def quick(delivery: Delivery) -> None:
        entries.append(delivery.lease.entry)
        await finishing(delivery)

    async with serving(bus, ["busy", "planner"], slow, places=1):
        busy = await admit(bus, "busy")
        await until(lambda: _holds(bus, "busy"), "the worker is full")
        with worker_process(bus.settings, behaviour="hold") as doomed:
            lost = await admit(bus)
            await doomed.heard("took")
            doomed.send(signal.SIGKILL)
            await doomed.gone()
        overdue = await admit(bus, "nobody", seconds=0.05)
        await ended(bus, overdue)
        async with serving(bus, ["planner"], quick):
            await ended(bus, lost)
        release.set()
        await ended(bus, busy)
    assert len(entries) == 1
    assert (await bus.run_state(overdue)).outcome == "deadline"


async def _holds(bus: Bus, stream: str) -> bool:
    return await pending(bus, stream) == 1


async def test_a_full_worker_gives_its_next_place_to_a_dead_worker_s_message(
    bus: Bus,
) -> None:
    """Otherwise readers would fill each place at once, and sweeps find none until the backlog
    ends."""
    doors = [asyncio.Event() for _ in range(5)]
    order: list[str] = []

    async def handler(delivery: Delivery) -> None:
        order.append(delivery.envelope.run_id)
        await doors[len(order) - 1].wait()
        await finishing(delivery)

    with worker_process(bus.settings, behaviour="hold") as doomed:
        await doomed.heard("ready")
        lost = await admit(bus)
        await doomed.heard("took")
        doomed.send(signal.SIGKILL)
        await doomed.gone()
    backlog = [await admit(bus) for _ in range(4)]
    async with serving(bus, ["planner"], handler, places=1) as consumer:
        await until(
            lambda: consumer._kept == 1,  # pyright: ignore[reportPrivateUsage]
            "the lease that expired is seen",
        )
        for door in doors:
            door.set()
        for run_id in (lost, *backlog):
            await ended(bus, run_id)
    assert order[1] == lost
    assert sorted([order[0], *order[2:]]) == sorted(backlog)


async def test_a_full_worker_returns_due_retries_to_their_stream(bus: Bus) -> None:
    release, run_ids = asyncio.Event(), list[str]()

    async def handler(delivery: Delivery) -> None:
        if not run_ids:
            run_ids.append(delivery.envelope.run_id)
            raise Retry("not yet", delay=0.3)
        await release.wait()
        await finishing(delivery)

    async with serving(bus, ["planner"], handler, places=1):
        first = await admit(bus)
        delayed = bus.keys.shard_of(first).delayed("planner")
        await until(lambda: _size(bus, delayed, 1), "the retry waits")
        second = await admit(bus)
        await until(lambda: _holds(bus, "planner"), "the worker is full")
        await until(lambda: _size(bus, delayed, 0), "the retry is due")
        release.set()
        await ended(bus, first)
        await ended(bus, second)


async def _size(bus: Bus, key: str, size: int) -> bool:
    return await bus.redis.zcard(key) == size


@pytest.mark.bus_settings(max_attempts=2)
async def test_a_message_that_kills_its_workers_becomes_a_dead_letter_after_the_last_attempt(
    bus: Bus,
) -> None:
    """Redis keeps the count: no process lives long enough to keep one."""
    settings = bus.settings
    run_id = await admit(bus)
    for count in ("1", "2"):
        with worker_process(settings, behaviour="die") as worker:
            assert (await worker.heard("took"))[1] == count
            assert await worker.gone() == 3
    with worker_process(settings, behaviour="die") as third:
        await third.heard("ready")
        await ended(bus, run_id)
        assert third.process.poll() is None, "the third worker lives"
    [letter] = await letters(bus)
    assert (letter.deliveries, letter.stream, letter.run_id) == (3, "planner", run_id)
    assert "attempts without a result: 2" in letter.reason
    state = await bus.run_state(run_id)
    assert (state.outcome, state.steps) == ("error", ())


async def test_names_of_dead_workers_are_removed_unless_they_hold_messages(bus: Bus) -> None:
    stream = bus.keys.shard(0).work("planner")
    await scripts.call(bus.redis, "group", [stream], [GROUP])
    await bus.redis.xgroup_createconsumer(stream, GROUP, "dead")
    entry = await bus.redis.xadd(stream, {"e": "held"})
    await bus.redis.xreadgroup(GROUP, "holder", {stream: ">"})

    async def names() -> set[bytes]:
        # The holder stays alive: no other worker may take its entry.
        await bus.redis.xclaim(stream, GROUP, "holder", 0, [entry], justid=True)
        consumers = await bus.redis.xinfo_consumers(stream, GROUP)
        return {consumer["name"] for consumer in consumers}

    async with serving(bus, ["planner"], finishing):

        async def reaped() -> bool:
            return b"dead" not in await names()

        await until(reaped, "the dead name is removed")
        assert b"holder" in await names()


async def test_a_worker_that_leaves_removes_its_name(bus: Bus) -> None:
    async with serving(bus, ["planner"], finishing) as consumer:
        run_id = await admit(bus)
        await ended(bus, run_id)
    stream = bus.keys.shard_of(run_id).work("planner")
    consumers = await bus.redis.xinfo_consumers(stream, GROUP)
    assert consumer.name.encode() not in {entry["name"] for entry in consumers}
