"""FastStream's per-message handler in a consumer group, acknowledged after each message."""

from __future__ import annotations

import asyncio

from faststream.redis import RedisBroker, StreamSub
from pydantic import BaseModel

from loopline.bench.proofs.bus.peers import STREAM, OnMessage, message_fields

BATCH = 500
READ = 500
"""Entries per read. By default FastStream reads the whole stream in one answer; both settings drain
at the same rate, but this one needs little memory."""


class Message(BaseModel):
    """Message that the handler receives: typed, like ours."""

    sent: int
    text: str


class Sender:
    """Producer that sends `publish` in pipelines."""

    async def open(self, url: str) -> None:
        self._broker = RedisBroker(url, logger=None)  # pyright: ignore[reportArgumentType]
        self._client = await self._broker.connect()

    async def send_many(self, count: int) -> None:
        for start in range(0, count, BATCH):
            async with self._client.pipeline(transaction=False) as pipe:
                for _ in range(min(BATCH, count - start)):
                    await self._broker.publish(message_fields(), stream=STREAM, pipeline=pipe)
                await pipe.execute()

    async def send_one(self) -> None:
        await self._broker.publish(message_fields(), stream=STREAM)

    async def close(self) -> None:
        await self._broker.stop()


class Handler:
    """Consumer with one subscriber."""

    async def open(self, url: str) -> None:
        self._broker = RedisBroker(url, logger=None)  # pyright: ignore[reportArgumentType]
        self._done = asyncio.Event()
        self._left = 0
        self._on_message: OnMessage = lambda _: None

        @self._broker.subscriber(
            stream=StreamSub(
                STREAM, group="workers", consumer="one", max_records=READ, polling_interval=1000
            )
        )  # fmt: skip
        async def handle(message: Message) -> None:  # pyright: ignore[reportUnusedFunction]
            self._on_message(message.sent)
            self._left -= 1
            if self._left == 0:
                self._done.set()

        client = await self._broker.connect()
        # Created here, from 0: FastStream would start at the end and skip earlier messages.
        await client.xgroup_create(STREAM, "workers", id="0", mkstream=True)

    async def consume(self, count: int, on_message: OnMessage) -> None:
        self._left, self._on_message = count, on_message
        await self._broker.start()
        await self._done.wait()

    async def close(self) -> None:
        await self._broker.stop()
