"""Calls that must not be made twice are recorded before they are made."""

from __future__ import annotations

import pytest

from loopline.bus import Bus, Delivery, LeaseLost, RunEnded, effects
from loopline.bus.effects import Resolution, Start, UnfinishedCall
from tests.bus.leasing import ask, take
from tests.bus.payloads import admit

NOTE = b'{"tool": "pay"}'
REPLY = b'{"result": "paid"}'


async def begun(bus: Bus) -> tuple[str, Delivery]:
    """Return a run, and the delivery of its request under which the call started."""
    run_id = await admit(bus)
    await ask(bus, run_id)
    delivery = await take(bus, run_id, "first")
    assert await effects.begin(delivery, NOTE) is Start.FIRST
    return run_id, delivery


async def taken_over(bus: Bus) -> tuple[str, Delivery, Delivery]:
    """Return the same, and the delivery to the worker that took the request over."""
    run_id, paused = await begun(bus)
    second = await take(bus, run_id, "second", paused)
    assert await effects.begin(second, NOTE) is Start.INTERRUPTED
    return run_id, paused, second


async def unfinished(bus: Bus) -> list[UnfinishedCall]:
    return [call async for call in effects.unfinished(bus)]


async def test_a_call_that_another_worker_started_is_not_repeated(bus: Bus) -> None:
    run_id, first = await begun(bus)
    second = await take(bus, run_id, "alive", first)
    assert await effects.begin(second, NOTE) is Start.INTERRUPTED


async def test_a_worker_that_asks_again_after_a_lost_connection_may_make_its_call(bus: Bus) -> None:
    _, delivery = await begun(bus)
    assert await effects.begin(delivery, NOTE) is Start.FIRST


async def test_a_worker_that_takes_over_a_finished_call_returns_its_recorded_outcome(
    bus: Bus,
) -> None:
    run_id, first = await begun(bus)
    assert await effects.finish(first, REPLY, NOTE)
    assert await unfinished(bus) == []
    second = await take(bus, run_id, "alive", first)
    assert await effects.begin(second, NOTE) == REPLY


async def test_a_paused_worker_s_result_counts_while_the_request_has_no_reply(
    bus: Bus,
) -> None:
    run_id, paused, second = await taken_over(bus)
    await effects.finish(second, None, b"waits")
    assert await effects.finish(paused, REPLY, NOTE)
    third = await take(bus, run_id, "alive", second)
    assert await effects.begin(third, NOTE) == REPLY
    assert await unfinished(bus) == []


async def test_a_worker_returns_a_paused_worker_s_outcome_instead_of_unknown(
    bus: Bus,
) -> None:
    _, paused, second = await taken_over(bus)
    assert await effects.finish(paused, REPLY, NOTE) is True
    assert await effects.finish(second, None, b"unknown", tells=True) == REPLY


async def test_an_outcome_that_arrives_after_unknown_was_reported_stays_listed(
    bus: Bus,
) -> None:
    _, paused, second = await taken_over(bus)
    assert await effects.finish(second, None, b"unknown", tells=True) is True
    assert await effects.finish(paused, REPLY, b"late") is False
    [call] = await unfinished(bus)
    assert call.note == b"late"
    assert await effects.resolve(bus, call, REPLY) is Resolution.SETTLED


async def test_an_outcome_that_arrives_after_the_reply_stays_listed(bus: Bus) -> None:
    _, paused, second = await taken_over(bus)
    await effects.finish(second, None, b"unknown", tells=True)
    await second.reply(b'{"error": "unknown"}', store=True)
    assert not await effects.finish(paused, REPLY, b"late")
    [call] = await unfinished(bus)
    assert call.note == b"late"
    assert await effects.resolve(bus, call, REPLY) is Resolution.SETTLED
    assert await unfinished(bus) == []


async def test_a_running_call_is_listed_as_held_and_cannot_be_resolved(
    bus: Bus,
) -> None:
    run_id = await admit(bus)
    await ask(bus, run_id)
    first = await take(bus, run_id, "worker/with a slash")
    await effects.begin(first, NOTE)
    [call] = await unfinished(bus)
    assert (call.in_hand, call.note) == (True, NOTE)
    assert await effects.resolve(bus, call, REPLY) is Resolution.BUSY
    await take(bus, run_id, "alive", first)
    [call] = await unfinished(bus)
    assert not call.in_hand


@pytest.mark.parametrize(("reply", "start"), [(REPLY, REPLY), (None, Start.FIRST)])
async def test_a_resolved_call_returns_its_outcome_or_is_made_again(
    bus: Bus, reply: bytes | None, start: Start | bytes
) -> None:
    run_id, first = await begun(bus)
    second = await take(bus, run_id, "alive", first)
    [call] = await unfinished(bus)
    assert await effects.resolve(bus, call, reply) is Resolution.WAITING
    assert await effects.resolve(bus, call, reply) is Resolution.MISSING
    assert await effects.begin(second, NOTE) == start


async def test_no_call_starts_without_the_lease_or_after_the_run_ended(bus: Bus) -> None:
    run_id = await admit(bus)
    await ask(bus, run_id)
    first = await take(bus, run_id, "paused")
    second = await take(bus, run_id, "alive", first)
    with pytest.raises(LeaseLost):
        await effects.begin(first, NOTE)
    await bus.cancel(run_id)
    with pytest.raises(RunEnded):
        await effects.begin(second, NOTE)
    assert await unfinished(bus) == []


async def test_a_call_whose_run_ended_without_its_outcome_stays_listed(bus: Bus) -> None:
    run_id, first = await begun(bus)
    await bus.cancel(run_id)
    await (await take(bus, run_id, "alive", first)).drop()
    [call] = await unfinished(bus)
    assert not call.in_hand
