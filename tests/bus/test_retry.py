"""Retries: delayed without a gap, counted with the crashes, and kept across a restart."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from loopline.bus import Bus, BusUnavailable, Delivery, Reject, Retry
from loopline.testing import RedisProcess
from tests.bus.payloads import Note, admit
from tests.bus.serving import ended, finishing, letters, serving, until
from tests.bus.worker_process import worker_process
from tests.conftest import quick_settings


async def test_a_retry_returns_after_its_delay_with_its_attempt_counted(bus: Bus) -> None:
    attempts: list[tuple[int, float]] = []

    async def handler(delivery: Delivery) -> None:
        attempts.append((delivery.envelope.attempt, time.monotonic()))
        if len(attempts) < 3:
            raise Retry("not yet", 0.2)
        await finishing(delivery)

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    assert [attempt for attempt, _ in attempts] == [0, 1, 2]
    pauses = [after - before for (_, before), (_, after) in pairwise(attempts)]
    assert min(pauses) >= 0.19


@pytest.mark.bus_settings(retry_base_seconds=0.1, max_attempts=4)
async def test_the_backoff_doubles(bus: Bus) -> None:
    times: list[float] = []

    async def handler(delivery: Delivery) -> None:
        times.append(time.monotonic())
        raise ValueError("again")

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    first, second, third = (after - before for before, after in pairwise(times))
    assert first >= 0.075
    assert second >= 0.15
    assert third >= 0.3


@pytest.mark.bus_settings(max_attempts=4)
async def test_crashes_and_retries_count_together(bus: Bus) -> None:
    """Two crashed deliveries and one retry are three attempts."""
    settings = bus.settings
    run_id = await admit(bus)
    for _ in range(2):
        with worker_process(settings, behaviour="die") as worker:
            await worker.heard("took")
            await worker.gone()
    with worker_process(settings, behaviour="again") as worker:
        assert (await worker.heard("took"))[1:] == ["3", "0"]
        assert (await worker.heard("took"))[1:] == ["1", "3"]
        await ended(bus, run_id)
    [letter] = await letters(bus)
    assert "failed attempts: 4; last: later" in letter.reason


async def test_a_waiting_retry_survives_a_redis_restart(own_server: RedisProcess) -> None:
    attempts: list[int] = []

    async def handler(delivery: Delivery) -> None:
        attempts.append(delivery.envelope.attempt)
        if delivery.envelope.attempt == 0:
            raise Retry("not yet", 1.0)
        await finishing(delivery)

    async with Bus(quick_settings(own_server.url)) as bus:
        bus.registry.register("note", Note)
        async with serving(bus, ["planner"], handler):
            run_id = await admit(bus)
            delayed = bus.keys.shard_of(run_id).delayed("planner")

            async def waits() -> bool:
                return await bus.redis.zcard(delayed) == 1

            await until(waits, "the retry is put off")
            own_server.kill()
            own_server.start()
            await ended(bus, run_id)
    assert attempts == [0, 1]


@pytest.mark.parametrize("error", [RedisConnectionError("gone"), BusUnavailable("gone")])
async def test_a_redis_outage_during_a_handler_does_not_count_against_its_message(
    bus: Bus, error: Exception
) -> None:
    tries: list[int] = []

    async def handler(delivery: Delivery) -> None:
        tries.append(delivery.envelope.attempt)
        if len(tries) <= bus.settings.max_attempts + 2:
            raise error
        await finishing(delivery)

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    assert set(tries) == {0}
    assert (await bus.run_state(run_id)).outcome == "answered"


@pytest.mark.parametrize("error", [FileNotFoundError("no such file"), TimeoutError("slow tool")])
async def test_a_handler_s_own_error_counts_against_its_message(bus: Bus, error: Exception) -> None:
    """The work's own OSError is not an outage of Redis: retried without a count, it would never
    end."""

    async def handler(delivery: Delivery) -> None:
        raise error

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    [letter] = await letters(bus)
    assert str(error) in letter.reason


async def test_a_rejected_message_becomes_a_dead_letter_at_once(bus: Bus) -> None:
    tries: list[int] = []

    async def handler(delivery: Delivery) -> None:
        tries.append(1)
        raise Reject("no retry can help")

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    [letter] = await letters(bus)
    assert (tries, letter.reason) == ([1], "no retry can help")
