"""A step that starts before its run's admission: others see the same as without it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from loopline.bus import Admission, Bus, BusSettings, Delivery, Outgoing, Overloaded, scripts
from loopline.bus.keys import GROUP
from tests.bus.eager_process import (
    ANSWERING,
    ASKING,
    DISCARDED,
    UNKNOWN,
    USED,
    Process,
    running,
)
from tests.bus.payloads import admit, new_run_id, note
from tests.bus.serving import ended, finishing, serving, until

BACKGROUND = {
    "sweep", "expire_waits", "clock", "shard", "group", "reap", "claim_ends", "end", "trim",
}  # fmt: skip
"""Scripts that a process calls from time to time, whatever its runs do."""


@pytest.fixture
async def process(bus: Bus) -> AsyncIterator[Process]:
    async with running(bus) as process:
        yield process


@pytest.fixture
async def second_bus(bus: Bus) -> AsyncIterator[Bus]:
    async with Bus(bus.settings, bus.registry) as second:
        yield second


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the scripts called about runs, in order."""
    names: list[str] = []
    call = scripts.call

    async def counted(redis: Any, name: str, *args: Any) -> Any:
        if name not in BACKGROUND:
            names.append(name)
        return await call(redis, name, *args)

    monkeypatch.setattr(scripts, "call", counted)
    return names


async def test_a_run_of_one_call_costs_two_scripts(
    bus: Bus, process: Process, calls: list[str]
) -> None:
    run_id = await admit(bus, ASKING)
    await ended(bus, run_id)
    assert calls == ["start", "reply_and_commit"]
    state = await bus.run_state(run_id)
    assert (state.outcome, state.answer, state.steps) == ("answered", '"42"', (b'"42"',))
    assert await bus.usage(run_id) == [USED]


async def test_a_further_call_for_an_eagerly_started_request_has_its_own_mark(
    bus: Bus, process: Process
) -> None:
    marks: list[str] = []

    async def call_again(delivery: Delivery) -> None:
        await delivery.mark(2, UNKNOWN, [(1, DISCARDED)])
        request = delivery.shard.request(delivery.envelope.reply_key)
        fields: list[bytes] = await bus.redis.hkeys(request)  # pyright: ignore[reportGeneralTypeIssues]
        marks.extend(name.decode() for name in fields if name.startswith(b"mark:"))

    process.before_reply = call_again
    run_id = await admit(bus, ASKING)
    await ended(bus, run_id)
    assert [name.rpartition("/")[2] for name in marks] == ["2"]
    assert sorted(await bus.usage(run_id)) == sorted([DISCARDED, USED])


async def test_a_run_that_is_refused_pays_for_nothing(bus: Bus, process: Process) -> None:
    for shard in bus.keys.all_shards():
        await bus.redis.set(shard.closed, b"", px=10_000)
    with pytest.raises(Overloaded):
        await admit(bus, ASKING)
    await asyncio.sleep(0)
    assert (len(process.begun), process.paid) == (1, [])
    assert await bus.queue_lengths([ASKING, ANSWERING]) == {ASKING: 0, ANSWERING: 0}


async def test_an_older_message_and_an_eagerly_started_step_are_both_served_once(
    bus: Bus, second_bus: Bus, process: Process
) -> None:
    for consumer_stream in (ASKING, ANSWERING):
        for shard in bus.keys.all_shards():
            await bus.redis.xgroup_destroy(shard.work(consumer_stream), GROUP)
            await scripts.call(bus.redis, "group", [shard.work(consumer_stream)], [GROUP])
    older = await admit(second_bus, ASKING)
    newer = await admit(bus, ASKING)
    await ended(bus, older)
    await ended(bus, newer)
    assert sorted(process.paid) == sorted([older, newer])
    assert await bus.usage(newer) == await bus.usage(older) == [USED]


async def test_a_long_step_does_not_delay_its_admission(bus: Bus, process: Process) -> None:
    release = asyncio.Event()
    process.before_asking = release.wait  # type: ignore[assignment]
    run_id = await asyncio.wait_for(admit(bus, ASKING), 5)
    assert await bus.is_active(run_id)
    assert process.paid == []
    release.set()
    await ended(bus, run_id)
    assert (process.begun, process.paid) == ([run_id], [run_id])
    assert await bus.usage(run_id) == [USED]


async def test_a_run_whose_step_fails_before_its_request_is_admitted_and_retried(
    bus: Bus, process: Process
) -> None:
    failures = [ValueError("once")]

    async def fail() -> None:
        if failures:
            raise failures.pop()

    process.before_asking = fail
    run_id = await admit(bus, ASKING)
    await ended(bus, run_id)
    assert (process.begun, process.paid) == ([run_id, run_id], [run_id])


async def test_a_step_without_room_for_its_request_sends_it_with_the_admission(
    bus: Bus, second_bus: Bus
) -> None:
    release = asyncio.Event()
    async with running(bus, places=1) as process:

        async def hold(_: Delivery) -> None:
            await release.wait()

        process.before_reply = hold
        first = await admit(bus, ASKING)
        await until(lambda: process.paid == [first], "its call is paid for")
        second = await admit(bus, ASKING)
        async with serving(second_bus, [ASKING], finishing):
            await ended(bus, second)
        release.set()
        await ended(bus, first)


async def test_two_concurrent_admissions_of_a_run_start_one_step(
    bus: Bus, process: Process, calls: list[str]
) -> None:
    run_id = new_run_id()
    admission = Admission(run_id, b"{}", time.time() + 60, (Outgoing(ASKING, note(run_id)),))
    assert sorted(await asyncio.gather(bus.admit(admission), bus.admit(admission))) == [False, True]
    await ended(bus, run_id)
    assert process.paid == [run_id]


class TestALostLease:
    @pytest.fixture
    def settings(self, settings: BusSettings) -> BusSettings:
        return settings.model_copy(
            update={"lease_seconds": 1.0, "sweep_seconds": 0.2, "retry_base_seconds": 0.05}
        )

    async def test_a_run_whose_admission_got_no_answer_is_taken_over_and_paid_once(
        self, bus: Bus, process: Process, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        call, cut = scripts.call, [RedisConnectionError("cut")]

        async def cut_off(redis: Any, name: str, *args: Any) -> Any:
            result = await call(redis, name, *args)
            if name == "start" and cut:
                raise cut.pop()
            return result

        monkeypatch.setattr(scripts, "call", cut_off)
        run_id = await admit(bus, ASKING)
        await ended(bus, run_id)
        assert process.paid == [run_id]
        # The mark that was written but not acted on records a possible payment.
        assert await bus.usage(run_id) == [UNKNOWN, USED]

    async def test_a_step_based_on_a_late_answer_is_repeated(
        self, bus: Bus, process: Process
    ) -> None:
        async def lose(delivery: Delivery) -> None:
            if len(process.paid) > 1:
                return
            lease = delivery.lease
            await bus.redis.xclaim(lease.stream, GROUP, "another", 0, [lease.entry])

        process.before_reply = lose
        run_id = await admit(bus, ASKING)
        await ended(bus, run_id)
        assert process.paid == [run_id, run_id]
        state = await bus.run_state(run_id)
        assert state.steps == (b'"42"',)
        assert sorted(await bus.usage(run_id)) == sorted([DISCARDED, USED])
