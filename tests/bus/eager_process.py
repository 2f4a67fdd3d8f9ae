"""A test process that eagerly starts the steps of the runs that it admits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from loopline.bus import Bus, Consumer, Delivery, Finish, Inbox, StepCommit
from tests.bus.payloads import note

UNKNOWN, USED, DISCARDED = b'"unknown"', b'"used"', b'"discarded"'
ASKING, ANSWERING = "asking", "answering"


class Process:
    """A process that admits runs, takes their steps and answers their requests."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.inbox = Inbox(bus)
        self.begun: list[str] = []
        """Runs whose step started here."""
        self.paid: list[str] = []
        """Runs whose call was paid for here."""
        self.before_asking: Callable[[], Awaitable[None]] | None = None
        self.before_reply: Callable[[Delivery], Awaitable[None]] | None = None

    async def step(self, delivery: Delivery) -> None:
        envelope = delivery.envelope
        self.begun.append(envelope.run_id)
        if self.before_asking is not None:
            await self.before_asking()
        request = note(envelope.run_id, key=f"{envelope.run_id}/0")
        answer = await self.inbox.request(ANSWERING, request, committed_with=True)
        await delivery.commit(StepCommit(answer, finish=Finish("answered", answer.decode())))

    async def pool(self, delivery: Delivery) -> None:
        await delivery.mark(1, UNKNOWN)
        self.paid.append(delivery.envelope.run_id)
        if self.before_reply is not None:
            await self.before_reply(delivery)
        await delivery.reply(b'"42"', store=True, usage=[(USED, DISCARDED)])


@asynccontextmanager
async def running(bus: Bus, places: int = 8) -> AsyncGenerator[Process]:
    process = Process(bus)
    consumers = [
        Consumer(bus, [stream], handler, concurrency=places, local=True, eager=True)
        for stream, handler in ((ASKING, process.step), (ANSWERING, process.pool))
    ]
    for shard in bus.keys.all_shards():
        for consumer in consumers:
            await consumer.ensure_groups(shard)
    async with process.inbox:
        tasks = [asyncio.create_task(consumer.run()) for consumer in consumers]
        await asyncio.sleep(0)
        yield process
        for consumer, task in zip(consumers, tasks, strict=True):
            consumer.drain()
            await asyncio.wait_for(task, 20)
