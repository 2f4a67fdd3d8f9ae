"""One bucket for all workers: turns are spaced evenly, and an endpoint's limits count."""

from __future__ import annotations

import asyncio
import time

import pytest

from loopline.bus import Bus
from loopline.bus.rate_limits import NoTurn, RateBucket


def bucket(bus: Bus, requests: int | None = None, tokens: int | None = None) -> RateBucket:
    return RateBucket(bus, "http://endpoint model", requests=requests, tokens=tokens)


async def test_all_workers_together_stay_within_the_limit(bus: Bus) -> None:
    workers = [bucket(bus, requests=1_200) for _ in range(4)]
    turns: list[float] = []

    async def calls(worker: RateBucket) -> None:
        for _ in range(8):
            await worker.wait(0, None)
            turns.append(time.monotonic())

    began = time.monotonic()
    await asyncio.gather(*map(calls, workers))
    # 20 per second; the first second's worth may go at once.
    assert len(turns) == 32
    assert max(turns) - began >= (32 - 20) / 20
    assert max(turns) - began < 10


async def test_the_first_caller_gets_the_first_turn(bus: Bus) -> None:
    worker, order = bucket(bus, requests=300), list[int]()

    async def call(number: int) -> None:
        await worker.wait(0, None)
        order.append(number)

    calls: list[asyncio.Task[None]] = []
    for number in range(8):
        calls.append(asyncio.create_task(call(number)))
        await asyncio.sleep(0.005)
    await asyncio.gather(*calls)
    assert order == sorted(order)


async def test_a_turn_that_comes_too_late_is_not_taken(bus: Bus) -> None:
    worker = bucket(bus, requests=1)
    await worker.wait(0, None)
    with pytest.raises(NoTurn, match="allows the next call in 6"):
        await worker.wait(0, 5.0)
    with pytest.raises(NoTurn, match="allows the next call in 6"):  # as far in the future as before
        await worker.wait(0, 5.0)


async def test_tokens_are_counted_and_unused_ones_returned(bus: Bus) -> None:
    worker = bucket(bus, tokens=600)
    await worker.wait(600, None)
    with pytest.raises(NoTurn):
        await worker.wait(1, 5.0)
    await worker.settle(600, 20)
    await worker.wait(1, 5.0)


async def test_rate_limit_news_from_one_worker_applies_to_all(bus: Bus) -> None:
    first, second = bucket(bus, requests=6_000), bucket(bus, requests=6_000)
    await first.learn(None, None, 60.0)
    with pytest.raises(NoTurn):
        await second.wait(0, 5.0)


async def test_a_limit_from_headers_applies_where_the_settings_have_none(bus: Bus) -> None:
    first, second = bucket(bus), bucket(bus)
    assert not first.limited
    await first.learn(1, None, None)
    await first.wait(0, 1.0)
    await second.learn(1, None, None)
    with pytest.raises(NoTurn):
        await second.wait(0, 1.0)


async def test_a_clock_that_jumps_back_blocks_no_caller(bus: Bus) -> None:
    worker = bucket(bus, requests=6_000)
    await worker.wait(0, None)
    [key] = [key async for key in bus.redis.scan_iter(match=f"{{{bus.keys.prefix}}}:rate:*")]
    later = str((time.time() + 86_400) * 1000)
    await bus.redis.hset(key, mapping={"last": later, "requests": later})  # pyright: ignore
    await worker.wait(0, 5.0)


async def test_a_pause_noted_after_a_backward_jump_lasts_no_longer_than_set(
    bus: Bus,
) -> None:
    worker = bucket(bus, requests=6_000, tokens=6_000_000)
    await worker.wait(0, None)
    [key] = [key async for key in bus.redis.scan_iter(match=f"{{{bus.keys.prefix}}}:rate:*")]
    later = str((time.time() + 86_400) * 1000)
    names = ("last", "requests", "tokens", "until")
    await bus.redis.hset(key, mapping=dict.fromkeys(names, later))  # pyright: ignore
    await worker.learn(None, None, 0.2)
    await worker.wait(0, 5.0)


async def test_a_limit_from_headers_outlives_the_bucket(bus: Bus) -> None:
    worker = bucket(bus)
    await worker.learn(1, None, None)
    await worker.wait(0, 1.0)
    [key] = [key async for key in bus.redis.scan_iter(match=f"{{{bus.keys.prefix}}}:rate:*")]
    await bus.redis.delete(key)  # expired after an idle hour, or lost with the server's data
    await worker.learn(1, None, None)  # no news: it is not sent
    await worker.wait(0, 1.0)
    with pytest.raises(NoTurn):
        await worker.wait(0, 1.0)


async def _have_sent(bus: Bus, calls: int, *, seconds_ago: int) -> int:
    """Note calls of all workers in the bucket; return the Unix second in which they were sent."""
    [key] = [key async for key in bus.redis.scan_iter(match=f"{{{bus.keys.prefix}}}:rate:*")]
    now, _ = await bus.redis.time()
    second = int(now) - seconds_ago
    await bus.redis.hset(key, f"sent:{second % 61}", f"{second}:{calls}")  # pyright: ignore
    return second


async def test_a_call_over_the_minute_s_limit_waits_although_its_turn_has_come(
    bus: Bus,
) -> None:
    worker = bucket(bus, requests=1_200)
    for _ in range(21):  # the second's worth that may go at once, and one waiting
        await worker.wait(0, None)
    sent = await _have_sent(bus, 1_200, seconds_ago=60)
    await worker.wait(0, 5.0)
    now, _ = await bus.redis.time()
    assert now >= sent + 61


async def test_a_call_over_the_minute_s_limit_is_refused_if_its_caller_cannot_wait(
    bus: Bus,
) -> None:
    worker = bucket(bus, requests=1_200)
    await worker.wait(0, None)
    await _have_sent(bus, 1_200, seconds_ago=30)
    with pytest.raises(NoTurn, match="allows the next call in 3"):
        await worker.wait(0, 5.0)


async def test_calls_dated_in_the_future_by_a_clock_jump_are_not_counted(bus: Bus) -> None:
    worker = bucket(bus, requests=1_200)
    await worker.wait(0, None)
    await _have_sent(bus, 1_200, seconds_ago=-20)
    await worker.wait(0, 5.0)
