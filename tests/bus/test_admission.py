"""Admission: once for each run, within limits, or with a reason for the refusal."""

from __future__ import annotations

import asyncio
import time

import pytest

from loopline.bus import (
    Admission,
    Bus,
    BusSettings,
    DeadlineExceeded,
    Inbox,
    MessageTooLarge,
    Outgoing,
    Overloaded,
)
from tests.bus.payloads import admit, new_run_id, note
from tests.bus.serving import ended, finishing, serving


def admission(run_id: str, *, text: str = "", deadline: float | None = None) -> Admission:
    return Admission(
        run_id,
        b"{}",
        time.time() + 60 if deadline is None else deadline,
        (Outgoing("planner", note(run_id, text)),),
    )


async def test_admitting_a_run_twice_starts_it_once(bus: Bus) -> None:
    run_id = new_run_id()
    answers = await asyncio.gather(*(bus.admit(admission(run_id)) for _ in range(20)))
    assert sorted(answers) == [False] * 19 + [True]
    assert await bus.queue_lengths(["planner"]) == {"planner": 1}


async def test_a_late_repeated_admission_does_not_restart_an_ended_run(bus: Bus) -> None:
    async with serving(bus, ["planner"], finishing):
        run_id = await admit(bus)
        await ended(bus, run_id)
    assert not await bus.admit(admission(run_id))
    assert await bus.queue_lengths(["planner"]) == {"planner": 0}


async def test_runs_over_the_limit_are_refused_until_one_ends(settings: BusSettings) -> None:
    async with Bus(settings.model_copy(update={"max_runs": 3})) as bus:
        runs = [await admit(bus) for _ in range(3)]
        with pytest.raises(Overloaded, match=r"3 runs in flight, the limit is 3.*later"):
            await admit(bus)
        assert not await bus.admit(admission(runs[0])), "a repetition is answered, not refused"
        assert await bus.cancel(runs[1])
        await admit(bus)
        assert len(await bus.active_runs()) == 3


async def test_concurrent_admissions_never_exceed_the_limit(
    settings: BusSettings,
) -> None:
    async with Bus(settings.model_copy(update={"max_runs": 5})) as bus:
        answers = await asyncio.gather(*(admit(bus) for _ in range(30)), return_exceptions=True)
        assert sum(isinstance(answer, str) for answer in answers) == 5
        assert sum(isinstance(answer, Overloaded) for answer in answers) == 25
        assert await bus.queue_lengths(["planner"]) == {"planner": 5}


async def test_admission_refuses_runs_while_the_recorder_is_far_behind(
    settings: BusSettings,
) -> None:
    async with Bus(settings.model_copy(update={"max_unrecorded": 2})) as bus:
        for _ in range(2):
            assert await bus.cancel(await admit(bus))
        with pytest.raises(Overloaded, match="2 trajectories waiting for the recorder"):
            await admit(bus)


async def test_a_question_over_the_size_limit_is_refused_and_leaves_nothing_behind(
    bus: Bus,
) -> None:
    run_id = new_run_id()
    with pytest.raises(MessageTooLarge, match="max_message_bytes"):
        await bus.admit(admission(run_id, text="x" * 10_000_000))
    assert (await bus.run_state(run_id)).state == "missing"
    assert await bus.queue_lengths(["planner"]) == {"planner": 0}


async def test_a_deadline_more_than_a_day_away_is_refused(bus: Bus) -> None:
    with pytest.raises(ValueError, match="one day"):
        await bus.admit(admission(new_run_id(), deadline=time.time() + 100_000))


async def test_a_deadline_too_far_in_the_past_to_end_the_run_is_refused(bus: Bus) -> None:
    with pytest.raises(DeadlineExceeded, match="long past"):
        await bus.admit(admission(new_run_id(), deadline=1.0))
    assert await bus.active_runs() == []


async def test_a_run_admitted_after_its_deadline_still_ends_with_a_trajectory(bus: Bus) -> None:
    run_id = new_run_id()
    await bus.admit(admission(run_id, deadline=time.time() - 1))

    async with serving(bus, ["somebody"], finishing):  # any worker of the shard sweeps deadlines
        await ended(bus, run_id)
    [(_, trajectory)] = await bus.redis.xrange(bus.keys.shard_of(run_id).trajectories)
    assert trajectory[b"outcome"] == b"deadline"


async def test_the_admitting_client_is_notified_when_the_run_ends(bus: Bus) -> None:
    async with Inbox(bus) as inbox, serving(bus, ["planner"], finishing):
        run_id = new_run_id()
        shard = bus.keys.shard_of(run_id)
        wait = asyncio.create_task(inbox.wait_ended(run_id))
        await bus.admit(
            Admission(run_id, b"{}", time.time() + 60, (Outgoing("planner", note(run_id)),),
                      notify=inbox.key(shard))
        )  # fmt: skip
        await asyncio.wait_for(wait, 20)
        await asyncio.wait_for(inbox.wait_ended(run_id), 20)
    assert (await bus.run_state(run_id)).outcome == "answered"
