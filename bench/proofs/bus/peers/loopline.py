"""Loopline at its full guarantee: every message is a run's step, leased, committed, handed on."""

from __future__ import annotations

import asyncio
import time
import uuid

import orjson
from pydantic import BaseModel

from loopline.bench.proofs.bus.peers import STREAM, OnMessage, message_fields
from loopline.bus import (
    Admission,
    Bus,
    BusSettings,
    Consumer,
    Delivery,
    Envelope,
    Outgoing,
    Registry,
    StepCommit,
)

CONCURRENCY = 256
IN_FLIGHT = 64
NEXT = "next"
TYPE = "bench.message"


class Message(BaseModel):
    """Payload of the message."""

    sent: int
    text: str


def bus_of(url: str) -> Bus:
    registry = Registry()
    registry.register(TYPE, Message)
    settings = BusSettings(redis_url=url, max_runs=100_000_000, max_unrecorded=100_000_000)
    return Bus(settings, registry)


def admission(run_id: str) -> Admission:
    """Return a run whose first message is the bench's."""
    deadline = time.time() + 3600
    envelope = Envelope(type=TYPE, run_id=run_id, deadline=deadline, payload=message_fields())
    return Admission(run_id, b"{}", deadline, (Outgoing(STREAM, envelope),))


class Sender:
    """Producer that admits a run per message."""

    async def open(self, url: str) -> None:
        self._bus = bus_of(url)
        await self._bus.start()

    async def send_many(self, count: int) -> None:
        remaining = iter(range(count))

        async def admit() -> None:
            for _ in remaining:
                await self.send_one()

        await asyncio.gather(*(admit() for _ in range(IN_FLIGHT)))

    async def send_one(self) -> None:
        await self._bus.admit(admission(str(uuid.uuid4())))

    async def close(self) -> None:
        await self._bus.close()


class Handler:
    """Consumer whose handler commits a step with a journal entry and a hand-off."""

    async def open(self, url: str) -> None:
        self._bus = bus_of(url)
        self._left = 0
        self._done = asyncio.Event()
        self._on_message: OnMessage = lambda _: None
        self._consumer = Consumer(self._bus, [STREAM], self._handle, concurrency=CONCURRENCY)
        await self._bus.start()
        for shard in self._bus.keys.all_shards():
            await self._consumer.ensure_groups(shard)

    async def _handle(self, delivery: Delivery) -> None:
        message = delivery.payload
        assert isinstance(message, Message)
        self._on_message(message.sent)
        came = delivery.envelope
        step = orjson.dumps({"run_id": came.run_id, "turn": came.turn, "text": message.text})
        onward = Envelope(
            type=TYPE, run_id=came.run_id, turn=came.turn + 1, deadline=came.deadline,
            payload=came.payload,
        )  # fmt: skip
        await delivery.commit(StepCommit(step, publish=(Outgoing(NEXT, onward),)))
        self._left -= 1
        if self._left == 0:
            self._done.set()

    async def consume(self, count: int, on_message: OnMessage) -> None:
        self._left, self._on_message = count, on_message
        self._serving = asyncio.create_task(self._consumer.run())
        await self._done.wait()

    async def close(self) -> None:
        # Its last read waits a little longer for messages, which is not part of the measurement.
        self._consumer.drain()
        await self._serving
        await self._bus.close()
