"""Consumers for tests in this process, and helpers that wait for their work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from loopline.bus import Bus, Consumer, DeadLetter, Delivery, Finish, StepCommit, dead_letters

Handler = Callable[[Delivery], Awaitable[None]]


@asynccontextmanager
async def serving(
    bus: Bus, streams: Sequence[str], handler: Handler, places: int = 8
) -> AsyncGenerator[Consumer]:
    """A consumer that is drained at the end, so that no message stays in hand."""
    consumer = Consumer(bus, streams, handler, concurrency=places)
    task = asyncio.create_task(consumer.run())
    try:
        yield consumer
    except BaseException:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    consumer.drain()
    await asyncio.wait_for(task, 20)


async def finishing(delivery: Delivery) -> None:
    """A handler that ends the run with its first step."""
    await delivery.commit(StepCommit(b'"done"', finish=Finish("answered", "42")))


async def ended(bus: Bus, run_id: str, within: float = 20) -> None:
    async def wait() -> None:
        # Read until the follower ends by itself: the log of a replayed run also contains an earlier
        # `ended`.
        async for _ in bus.follow(run_id):
            pass

    await asyncio.wait_for(wait(), within)


async def until(holds: Callable[[], bool | Awaitable[bool]], what: str, within: float = 20) -> None:
    """Check again until a condition is true: at once at first, then less and less often."""
    began, pause = time.monotonic(), 0.001
    while True:
        answer = holds()
        if not isinstance(answer, bool):
            answer = await answer
        if answer:
            return
        assert time.monotonic() - began < within, f"not within {within} s: {what}"
        await asyncio.sleep(pause)
        pause = min(0.05, pause * 1.5)


async def letters(bus: Bus) -> list[DeadLetter]:
    return [letter async for letter in dead_letters.ls(bus)]


async def pending(bus: Bus, stream: str) -> int:
    """Return the number of pending deliveries of a work stream over all shards."""
    count = 0
    for shard in bus.keys.all_shards():
        if await bus.redis.exists(shard.work(stream)):
            groups = await bus.redis.xinfo_groups(shard.work(stream))
            count += sum(int(group["pending"]) for group in groups)
    return count
