"""The client's limit: only redis-py, everything in pipelined batches, without any guarantee."""

from __future__ import annotations

import orjson
from redis.asyncio import Redis

from loopline.bench.proofs.bus.peers import STREAM, OnMessage, message_body

BATCH = 500


class Sender:
    """Producer with XADD in pipelines."""

    async def open(self, url: str) -> None:
        self._redis = Redis.from_url(url)
        await self._redis.ping()  # pyright: ignore[reportGeneralTypeIssues]

    async def send_many(self, count: int) -> None:
        for start in range(0, count, BATCH):
            async with self._redis.pipeline(transaction=False) as pipe:
                for _ in range(min(BATCH, count - start)):
                    pipe.xadd(STREAM, {"data": message_body()})
                await pipe.execute()

    async def send_one(self) -> None:
        await self._redis.xadd(STREAM, {"data": message_body()})

    async def close(self) -> None:
        await self._redis.aclose()


class Handler:
    """Consumer with XREADGROUP, a parser, and one XACK per batch."""

    async def open(self, url: str) -> None:
        self._redis = Redis.from_url(url)
        await self._redis.xgroup_create(STREAM, "workers", id="0", mkstream=True)

    async def consume(self, count: int, on_message: OnMessage) -> None:
        entry_count = 0
        while entry_count < count:
            streams = await self._redis.xreadgroup(
                "workers", "one", {STREAM: ">"}, count=BATCH, block=1000
            )
            if not streams:
                continue
            entries = streams[0][1]
            for _, values in entries:
                on_message(orjson.loads(values[b"data"])["sent"])
            await self._redis.xack(STREAM, "workers", *(entry for entry, _ in entries))
            entry_count += len(entries)

    async def close(self) -> None:
        await self._redis.aclose()
