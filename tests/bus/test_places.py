"""A consumer leases no more than its places, over however many shards its work is spread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from loopline.bus import Admission, Bus, BusSettings, Consumer, Delivery, Outgoing
from tests.bus.payloads import new_run_id, note
from tests.bus.serving import ended, finishing, serving, until

SHARDS = 5


@pytest.fixture
def settings(settings: BusSettings) -> BusSettings:
    return settings.model_copy(update={"shards": SHARDS, "lease_seconds": 20.0})


async def admit_to(bus: Bus, shards: Sequence[int]) -> list[str]:
    """Admit one run to each of these shards."""
    runs: list[str] = []
    for shard in shards:
        run_id = new_run_id()
        while bus.keys.shard_of(run_id).index != shard:
            run_id = new_run_id()
        message = Outgoing("planner", note(run_id))
        await bus.admit(Admission(run_id, b"{}", time.time() + 60, (message,)))
        runs.append(run_id)
    return runs


async def test_a_full_consumer_leaves_messages_to_another(bus: Bus) -> None:
    release = asyncio.Event()
    in_hand: list[tuple[int, int]] = []

    async def handler(delivery: Delivery) -> None:
        in_hand.append((full.busy, idle.busy))
        await release.wait()
        await finishing(delivery)

    runs = await admit_to(bus, [*range(SHARDS)] * 3)
    idle = Consumer(bus, ["planner"], handler, concurrency=4)
    async with serving(bus, ["planner"], handler, 2) as full:
        await until(lambda: full.busy >= 2, "a consumer whose places are taken")
        serves = asyncio.create_task(idle.run())
        await until(lambda: (full.busy, idle.busy) == (2, 4), "two full consumers")
        release.set()
        for run_id in runs:
            await ended(bus, run_id)
        idle.drain()
        await serves
    assert max(first for first, _ in in_hand) == 2
    assert max(second for _, second in in_hand) == 4


async def test_a_shard_with_little_work_gets_its_turn_next_to_a_busy_one(bus: Bus) -> None:
    order: list[str] = []

    async def handler(delivery: Delivery) -> None:
        order.append(delivery.envelope.run_id)
        await finishing(delivery)

    many = await admit_to(bus, [0] * 20)
    few = await admit_to(bus, range(1, SHARDS))
    async with serving(bus, ["planner"], handler, 1):
        for run_id in many + few:
            await ended(bus, run_id)
    assert max(order.index(run_id) for run_id in few) < 2 * SHARDS


async def test_all_places_go_to_one_shard_when_only_that_one_has_work(bus: Bus) -> None:
    release = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        await release.wait()
        await finishing(delivery)

    async with serving(bus, ["planner"], handler, 8) as consumer:
        runs = await admit_to(bus, [3] * 12)
        await until(lambda: consumer.busy == 8, "places that are all taken")
        release.set()
        for run_id in runs:
            await ended(bus, run_id)


async def test_a_consumer_with_fewer_places_than_shards_serves_every_shard(bus: Bus) -> None:
    async with serving(bus, ["planner"], finishing, 2):
        for shard in range(SHARDS):
            [run_id] = await admit_to(bus, [shard])
            await ended(bus, run_id)
