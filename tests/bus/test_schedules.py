"""A tick of a schedule has one run, whichever caller fires it."""

from __future__ import annotations

import asyncio
import time

import pytest

from loopline.bus import Admission, Bus, Outgoing, Overloaded, schedules
from tests.bus.payloads import new_run_id, note


def admission(run_id: str = "", seconds: float = 60) -> Admission:
    run_id = run_id or new_run_id()
    first = (Outgoing("planner", note(run_id)),)
    return Admission(run_id, b"{}", time.time() + seconds, first)


async def test_a_schedule_is_due_at_its_tick_and_moves_on_to_the_next(bus: Bus) -> None:
    now = bus.clock.now()
    assert await schedules.put(bus, "daily", b"body", now - 1)
    assert await schedules.put(bus, "later", b"body", now + 60)
    [stored] = await schedules.due(bus)
    assert (stored.name, stored.body) == ("daily", b"body")
    assert await schedules.fire(bus, stored, now + 90, admission())
    assert await schedules.due(bus) == []
    assert [(item.name, round(item.tick - now)) for item in await schedules.ls(bus)] == [
        ("daily", 90),
        ("later", 60),
    ]
    assert await bus.queue_lengths(["planner"]) == {"planner": 1}


async def test_when_many_fire_one_tick_only_one_admits_its_run(bus: Bus) -> None:
    now = bus.clock.now()
    await schedules.put(bus, "daily", b"body", now - 1)
    [stored] = await schedules.due(bus)
    fired = await asyncio.gather(
        *(schedules.fire(bus, stored, now + 60, admission()) for _ in range(8))
    )
    assert sorted(fired) == [False] * 7 + [True]
    assert await bus.queue_lengths(["planner"]) == {"planner": 1}


async def test_an_already_admitted_run_advances_the_schedule(bus: Bus) -> None:
    now = bus.clock.now()
    await schedules.put(bus, "daily", b"body", now - 1)
    [stored] = await schedules.due(bus)
    run = admission()
    await bus.admit(run)
    assert not await schedules.fire(bus, stored, now + 60, run)
    assert await schedules.due(bus) == []


async def test_a_tick_without_room_for_its_run_stays_due(bus: Bus) -> None:
    bus.settings = bus.settings.model_copy(update={"max_runs": 1})
    await bus.admit(admission())
    now = bus.clock.now()
    await schedules.put(bus, "daily", b"body", now - 1)
    [stored] = await schedules.due(bus)
    with pytest.raises(Overloaded):
        await schedules.fire(bus, stored, now + 60, admission())
    assert len(await schedules.due(bus)) == 1


async def test_a_tick_can_be_skipped(bus: Bus) -> None:
    now = bus.clock.now()
    await schedules.put(bus, "daily", b"body", now - 1)
    [stored] = await schedules.due(bus)
    assert await schedules.fire(bus, stored, now + 60, None)
    assert not await schedules.fire(bus, stored, now + 60, None)
    assert await bus.queue_lengths(["planner"]) == {"planner": 0}


async def test_no_tick_fires_while_the_time_is_in_doubt(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = bus.clock.now()
    await schedules.put(bus, "daily", b"body", now + 3_600)
    ahead = int(1000 * (now + 7_200))
    monkeypatch.setattr(bus.clock, "now_ms", lambda: ahead)
    [stored] = await schedules.due(bus)
    assert not await schedules.fire(bus, stored, now + 9_000, admission())


async def test_a_schedule_s_name_is_unique_and_free_again_after_removal(bus: Bus) -> None:
    assert await schedules.put(bus, "daily", b"1", 1.0)
    assert not await schedules.put(bus, "daily", b"2", 1.0)
    assert await schedules.put(bus, "daily", b"3", 1.0, replace=True)
    assert [item.body for item in await schedules.ls(bus)] == [b"3"]
    assert await schedules.remove(bus, "daily")
    assert not await schedules.remove(bus, "daily")
    assert await schedules.ls(bus) == []


async def test_an_invalid_schedule_is_refused(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "MAX_SCHEDULES", 1)
    assert await schedules.put(bus, "one", b"1", 1.0)
    with pytest.raises(ValueError, match="the limit"):
        await schedules.put(bus, "two", b"1", 1.0)
    with pytest.raises(ValueError, match="not a schedule's name"):
        await schedules.put(bus, "a b", b"1", 1.0)
    with pytest.raises(ValueError, match="max_message_bytes"):
        await schedules.put(bus, "one", b"x" * 2_000_000, 1.0, replace=True)


async def test_a_schedule_is_added_although_the_call_s_answer_was_lost(bus: Bus) -> None:
    now = bus.clock.now()
    assert await schedules.put(bus, "daily", b"1", now - 1)
    [stored] = await schedules.due(bus)
    assert await schedules.fire(bus, stored, now + 60, None)
    assert await schedules.put(bus, "daily", b"1", now - 1), "the same call, once more"
    assert await schedules.due(bus) == [], "its tick is not taken back"
