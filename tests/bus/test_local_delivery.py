"""A process that publishes to a stream which it serves reads its message in the same script, and
notifies itself of replies and ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from loopline.bus import Admission, Bus, BusSettings, Consumer, Delivery, Inbox, Outgoing, scripts
from loopline.bus.keys import GROUP
from tests.bus.payloads import admit, new_run_id, note
from tests.bus.serving import ended, finishing, pending, serving, until


@pytest.fixture
async def second_bus(bus: Bus) -> AsyncIterator[Bus]:
    """A bus of another process."""
    async with Bus(bus.settings, bus.registry) as second:
        yield second


async def running(consumer: Consumer) -> asyncio.Task[None]:
    """Start a consumer whose groups exist, so that scripts can read for it."""
    for shard in consumer.bus.keys.all_shards():
        await consumer.ensure_groups(shard)
    task = asyncio.create_task(consumer.run())
    await asyncio.sleep(0)
    return task


async def test_a_local_delivery_carries_the_run_state_known_at_admission(bus: Bus) -> None:
    records: list[bytes] = []

    async def handler(delivery: Delivery) -> None:
        assert delivery.state is not None, "its own message came back by a read of its own"
        records.append((await delivery.run_state()).run)
        assert await delivery.deadline() == await bus.deadline_of(delivery.envelope.run_id)
        await finishing(delivery)

    consumer = Consumer(bus, ["planner"], handler, local=True)
    task = await running(consumer)
    await ended(bus, await admit(bus))
    consumer.drain()
    await task
    assert records == [b'{"run": "record"}']


async def test_the_message_that_waited_longer_comes_first(bus: Bus) -> None:
    order: list[str] = []
    both = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        order.append(delivery.envelope.run_id)
        if len(order) == 2:
            both.set()
        await finishing(delivery)

    consumer = Consumer(bus, ["planner"], handler, local=True)
    for shard in bus.keys.all_shards():
        await consumer.ensure_groups(shard)
    older = await admit(bus)
    bus.local.serve(["planner"], consumer)  # its reader is not running yet
    newer = await admit(bus)
    task = asyncio.create_task(consumer.run())
    await asyncio.wait_for(both.wait(), 20)
    consumer.drain()
    await task
    assert order == [older, newer]


async def test_a_consumer_without_a_place_leaves_its_message_to_another(
    bus: Bus, second_bus: Bus
) -> None:
    release, takers = asyncio.Event(), list[str]()

    async def hold(delivery: Delivery) -> None:
        takers.append("full")
        await release.wait()
        await finishing(delivery)

    async def take(delivery: Delivery) -> None:
        takers.append("idle")
        await finishing(delivery)

    full = Consumer(bus, ["planner"], hold, concurrency=1, local=True)
    task = await running(full)
    first = await admit(bus)
    await until(lambda: full.busy == 1, "its one place is takers")
    second = await admit(bus)
    async with serving(second_bus, ["planner"], take):
        await ended(bus, second)
        release.set()
        await ended(bus, first)
    full.drain()
    await task
    assert sorted(takers) == ["full", "idle"]


async def test_a_draining_consumer_reads_nothing(bus: Bus, second_bus: Bus) -> None:
    consumer = Consumer(bus, ["planner"], finishing, local=True)
    task = await running(consumer)
    consumer.drain()
    await task
    run_id = await admit(bus)
    assert await pending(bus, "planner") == 0
    async with serving(second_bus, ["planner"], finishing):
        await ended(bus, run_id)


class TestADeathBetweenTheScriptAndItsAnswer:
    @pytest.fixture
    def settings(self, settings: BusSettings) -> BusSettings:
        return settings.model_copy(update={"lease_seconds": 1.0, "sweep_seconds": 0.2})

    async def test_another_worker_takes_over_messages_read_for_a_dead_one(
        self, bus: Bus, second_bus: Bus
    ) -> None:
        consumer = Consumer(bus, ["planner"], finishing, local=True)
        for shard in bus.keys.all_shards():
            await consumer.ensure_groups(shard)
        bus.local.serve(["planner"], consumer)
        consumer.take = lambda *_: None  # type: ignore[method-assign] # it dies here
        run_id = await admit(bus)
        assert await pending(bus, "planner") == 1
        async with serving(second_bus, ["planner"], finishing):
            await ended(bus, run_id)


async def test_a_run_that_is_admitted_again_is_read_once(bus: Bus) -> None:
    handled: list[str] = []

    async def handler(delivery: Delivery) -> None:
        handled.append(delivery.envelope.run_id)
        await finishing(delivery)

    consumer = Consumer(bus, ["planner"], handler, local=True)
    task = await running(consumer)
    run_id = new_run_id()
    message = Outgoing("planner", note(run_id))
    admission = Admission(run_id, b"{}", time.time() + 60, (message,))
    assert await bus.admit(admission)
    assert not await bus.admit(admission)
    await ended(bus, run_id)
    consumer.drain()
    await task
    assert handled == [run_id]


async def test_a_process_answers_its_own_request_without_mail(bus: Bus) -> None:
    async def handler(delivery: Delivery) -> None:
        assert delivery.state is not None
        await delivery.reply(b'"42"', store=True)

    consumer = Consumer(bus, ["infer"], handler, local=True)
    task = await running(consumer)
    run_id = await admit(bus)
    async with Inbox(bus) as inbox:
        asking = inbox.request("infer", note(run_id, key="k"))
        assert await asyncio.wait_for(asking, 3) == b'"42"'
        for shard in bus.keys.all_shards():
            assert await bus.redis.xlen(inbox.key(shard)) == 0
    consumer.drain()
    await task


async def test_a_caller_in_another_process_is_answered_by_mail(bus: Bus, second_bus: Bus) -> None:
    everybody = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        await everybody.wait()
        await delivery.reply(b'"42"', store=True)

    consumer = Consumer(bus, ["infer"], handler, local=True)
    task = await running(consumer)
    run_id = await admit(bus)
    async with Inbox(bus) as here, Inbox(second_bus) as there:
        asking = [
            asyncio.create_task(inbox.request("infer", note(run_id, key="k")))
            for inbox in (here, there)
        ]
        waiters = bus.keys.shard_of(run_id).request("k")
        await until(lambda: two_wait(bus, waiters), "both wait")
        everybody.set()
        assert await asyncio.wait_for(asyncio.gather(*asking), 3) == [b'"42"', b'"42"']
    consumer.drain()
    await task


async def two_wait(bus: Bus, request: str) -> bool:
    fields: list[bytes] = await bus.redis.hkeys(request)  # pyright: ignore
    return sum(field.startswith(b"w:") for field in fields) == 2


@pytest.mark.parametrize("seconds_ahead", [0, 2, -2, 7200, -7200])
async def test_a_run_ends_at_one_time_for_this_process_and_on_the_bus(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, seconds_ahead: int
) -> None:
    ms = int((time.time() + seconds_ahead) * 1000)
    monkeypatch.setattr(bus.clock, "now_ms", lambda: ms)
    consumer = Consumer(bus, ["planner"], finishing, local=True)
    task = await running(consumer)
    async with Inbox(bus) as inbox:
        run_id = new_run_id()
        end = inbox.expect_end(run_id)
        shard = bus.keys.shard_of(run_id)
        message = Outgoing("planner", note(run_id))
        await bus.admit(
            Admission(run_id, b"{}", time.time() + 60, (message,), notify=inbox.key(shard))
        )
        await asyncio.wait_for(inbox.wait_ended(run_id, within=20), 3)
        recorded = await bus.run_state(run_id)
        assert abs(recorded.ended - time.time()) < 60
        if abs(seconds_ahead) < 5:
            assert end.state is not None
            assert replace(end.state, admitted=recorded.admitted) == recorded
        else:
            assert end.state is None  # it is read from the bus
        assert await bus.redis.xlen(inbox.key(shard)) == 0
    consumer.drain()
    await task


async def test_admission_works_on_a_server_without_the_group(bus: Bus) -> None:
    consumer = Consumer(bus, ["planner"], finishing, local=True)
    for shard in bus.keys.all_shards():
        await scripts.call(bus.redis, "group", [shard.work("planner")], [GROUP])
        await bus.redis.xgroup_destroy(shard.work("planner"), GROUP)
    bus.local.serve(["planner"], consumer)
    run_id = await admit(bus)
    assert await bus.is_active(run_id)
