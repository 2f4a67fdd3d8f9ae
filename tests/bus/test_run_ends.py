"""Announcements of a run: each end and each wait for approval, at least once."""

from __future__ import annotations

import dataclasses
import json
import time

from loopline.bus import Admission, Bus, Delivery, Outgoing, run_ends, waits
from loopline.bus.run_ends import RunEnd
from loopline.bus.waits import Decided
from tests.bus.payloads import new_run_id, note
from tests.bus.serving import serving, until

NOTE = json.dumps({"digest": "d"}).encode()


async def due(bus: Bus) -> list[RunEnd]:
    return await run_ends.claim(bus, seconds=60, count=10)


async def parked_twice(bus: Bus) -> tuple[RunEnd, RunEnd]:
    """Park a step at its second call; return the announcements of its first and second call."""
    parked: list[str] = []

    async def handler(delivery: Delivery) -> None:
        parked.append(f"call {len(parked)}")
        await waits.park(delivery, parked[-1], NOTE, 60)

    async def is_waiting(calls: int) -> bool:
        return len(parked) == calls and len([w async for w in waits.waiting_runs(bus)]) == 1

    run_id = new_run_id()
    message = Outgoing("planner", note(run_id))
    async with serving(bus, ["planner"], handler):
        await bus.admit(Admission(run_id, b"{}", time.time() + 60, (message,), announce=True))
        await until(lambda: is_waiting(1), "its first call waits")
        [first] = await due(bus)
        [waiting] = [run async for run in waits.waiting_runs(bus)]
        assert await waits.decide(bus, waiting, "d", b'{"decision": "approved"}') is Decided.OK
        await until(lambda: is_waiting(2), "its second call waits")
    [second] = await due(bus)
    assert second.member == first.member
    return first, second


async def test_a_second_call_that_waits_during_the_first_announcement_is_announced_too(
    bus: Bus,
) -> None:
    first, second = await parked_twice(bus)
    # The receiver approved the first call before it answered the announcement.
    await run_ends.settle(bus, first)
    assert await bus.redis.zscore(second.shard.ends, second.member) == round(1000 * second.due)
    await run_ends.settle(bus, second)
    assert await bus.redis.zscore(second.shard.ends, second.member) is None


async def test_a_failed_announcement_does_not_delay_a_newer_one(bus: Bus) -> None:
    first, second = await parked_twice(bus)
    await run_ends.postpone(bus, first, 3_600)
    assert await bus.redis.zscore(second.shard.ends, second.member) == round(1000 * second.due)


async def test_a_failed_announcement_is_due_again_and_its_old_claim_is_void(
    bus: Bus,
) -> None:
    _, second = await parked_twice(bus)
    await run_ends.postpone(bus, second, -1)
    [again] = await due(bus)
    await run_ends.settle(bus, dataclasses.replace(again, due=again.due - 1))
    assert await bus.redis.zscore(again.shard.ends, again.member) == round(1000 * again.due)
