"""SIGTERM drains: the process takes nothing new, keeps its leases and finishes its work."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from loopline.bus import Bus, Consumer, Delivery
from loopline.bus.keys import GROUP
from tests.bus.payloads import admit
from tests.bus.serving import ended, finishing, serving, until
from tests.bus.worker_process import worker_process


@pytest.mark.bus_settings(lease_seconds=2.0)
async def test_a_drained_process_keeps_its_leases_and_finishes_its_work(bus: Bus) -> None:
    settings = bus.settings
    with worker_process(settings, behaviour="gate") as worker:
        await worker.heard("ready")
        run_id = await admit(bus)
        await worker.heard("took")
        worker.send(signal.SIGTERM)
        await worker.heard("draining")
        drained = time.monotonic()
        # A read that was waiting at the signal may still return a message, which is served.
        last_read = drained + 3 * bus.settings.block_seconds
        await until(lambda: time.monotonic() > last_read, "its last read is over")
        async with (
            Bus(settings, bus.registry) as second_bus,
            serving(second_bus, ["planner"], finishing),
        ):
            later = await admit(bus)
            await ended(bus, later)
            stream = bus.keys.shard_of(run_id).work("planner")

            async def outlived_its_lease() -> bool:
                [pending_entry] = await bus.redis.xpending_range(stream, GROUP, "-", "+", 10)
                assert pending_entry["times_delivered"] == 1, (
                    "the lease stays with the draining process"
                )
                return time.monotonic() - drained > 1.2 * settings.lease_seconds

            await until(outlived_its_lease, "a lease has passed")
            assert await bus.is_active(run_id), "draining cancels nothing"
            worker.tell()
            await worker.heard("committed")
            await worker.heard("left")
        assert await worker.gone() == 0
    state = await bus.run_state(run_id)
    assert (state.outcome, state.answer) == ("answered", "process")
    assert (await bus.run_state(later)).answer == "42", "taken by the other worker"


async def test_a_consumer_that_is_cancelled_leaves_its_work_to_another(bus: Bus) -> None:
    """After a second Ctrl-C the run continues elsewhere."""
    working = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        working.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(Consumer(bus, ["planner"], handler).run())
    run_id = await admit(bus)
    await working.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bus.keeper.count == 0
    assert await bus.is_active(run_id)
    async with serving(bus, ["planner"], finishing):
        await ended(bus, run_id)
    assert (await bus.run_state(run_id)).outcome == "answered"
