"""A waiting run holds nothing, and continues exactly once."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from loopline.bus import (
    Admission,
    Bus,
    Delivery,
    Finish,
    Join,
    Limits,
    MessageTooLarge,
    Outgoing,
    Overloaded,
    Reject,
    RunEnded,
    Scope,
    StepCommit,
    Wait,
    dead_letters,
    waits,
)
from loopline.bus.budgets import counts
from loopline.bus.errors import LeaseLost
from loopline.bus.waits import Decided, SignalSent, WaitingRun
from tests.bus.payloads import Woken, admit, new_run_id, note, woken_note
from tests.bus.serving import ended, finishing, letters, pending, serving, until


def waiting(run_id: str, signal: str = "paid", *, seconds: float = 60, turn: int = 1) -> Wait:
    return Wait(signal, Outgoing("after", woken_note(run_id, turn)), "text", seconds)


@pytest.fixture
def woken(bus: Bus) -> list[Any]:
    """The events that ended the waits of a test."""
    bus.registry.register("woken", Woken)
    return []


async def wait_for(bus: Bus, signal: str = "paid", *, seconds: float = 60) -> str:
    """A waiting run."""

    async def handler(delivery: Delivery) -> None:
        run_id = delivery.envelope.run_id
        await delivery.commit(StepCommit(b"{}", wait=waiting(run_id, signal, seconds=seconds)))

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await until(lambda: is_settled(bus), "the step is committed")
    return run_id


async def is_settled(bus: Bus) -> bool:
    return await bus.queue_lengths(["planner"]) == {"planner": 0}


def noting(woken: list[Any]) -> Any:
    async def handler(delivery: Delivery) -> None:
        payload = delivery.payload
        assert isinstance(payload, Woken)
        woken.append(payload.text)
        await delivery.commit(StepCommit(b"{}", finish=Finish("answered", "42")))

    return handler


async def send(bus: Bus, run_id: str, name: str = "paid", id: str = "1") -> SignalSent:
    return await waits.send_signal(bus, run_id, name, b'{"by": "card"}', id)


async def test_a_waiting_run_holds_no_message_and_no_place(bus: Bus) -> None:
    run_id = await wait_for(bus)
    assert await bus.queue_lengths(["planner", "after"]) == {"planner": 0, "after": 0}
    assert await pending(bus, "planner") == 0
    assert await bus.active_runs() == []
    state = await bus.run_state(run_id)
    assert state.active
    [wait] = state.waits
    assert (wait.kind, wait.name, wait.guard) == ("signal", "paid", "1.0")
    assert 55 < wait.expires - wait.since <= 60


async def test_a_signal_wakes_a_run_once_with_its_value(bus: Bus, woken: list[Any]) -> None:
    run_id = await wait_for(bus)
    async with serving(bus, ["after"], noting(woken)):
        assert await send(bus, run_id) is SignalSent.WOKEN
        assert await send(bus, run_id) is SignalSent.ALREADY
        await ended(bus, run_id)
    [outcome] = woken
    assert (outcome["kind"], outcome["value"], outcome["id"]) == ("signalled", {"by": "card"}, "1")
    assert (await bus.run_state(run_id)).waits == ()
    assert await send(bus, run_id, id="2") is SignalSent.ENDED


async def test_a_signal_sent_before_the_wait_is_kept_for_it(bus: Bus, woken: list[Any]) -> None:
    release = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        await release.wait()
        await delivery.commit(StepCommit(b"{}", wait=waiting(delivery.envelope.run_id)))

    async with serving(bus, ["planner"], handler), serving(bus, ["after"], noting(woken)):
        run_id = await admit(bus)
        assert await send(bus, run_id, "other", "0") is SignalSent.KEPT
        assert await send(bus, run_id) is SignalSent.KEPT
        assert await send(bus, run_id) is SignalSent.ALREADY
        release.set()
        await ended(bus, run_id)
    assert [outcome["id"] for outcome in woken] == ["1"]


async def test_kept_signals_and_all_signals_of_a_run_are_bounded(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await admit(bus, "nobody")
    answers = [await send(bus, run_id, id=str(number)) for number in range(waits.MAX_KEPT + 1)]
    assert answers == [SignalSent.KEPT] * waits.MAX_KEPT + [SignalSent.FULL]
    monkeypatch.setattr(waits, "MAX_SIGNALS", waits.MAX_KEPT)
    assert await send(bus, run_id, id="more") is SignalSent.MANY
    assert await send(bus, new_run_id()) is SignalSent.MISSING


async def test_an_expired_wait_continues_once_whichever_worker_sweeps(
    bus: Bus, woken: list[Any]
) -> None:
    run_id = await wait_for(bus, seconds=0.001)
    [shard] = bus.keys.all_shards()
    counts = await asyncio.gather(*(waits.expire(bus, shard) for _ in range(8)))
    assert sum(counts) in (0, 1)  # the sweep of `wait_for`'s consumer may have been faster
    async with serving(bus, ["after"], noting(woken)):
        await ended(bus, run_id)
    assert [outcome["kind"] for outcome in woken] == ["expired"]
    assert await send(bus, run_id) is SignalSent.ENDED


async def test_consumers_end_expired_waits(bus: Bus, woken: list[Any]) -> None:
    run_id = await wait_for(bus, seconds=0.2)
    async with serving(bus, ["after"], noting(woken)):
        await ended(bus, run_id)
    assert [outcome["kind"] for outcome in woken] == ["expired"]


async def test_no_wait_ends_while_the_time_is_in_doubt(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wait_for(bus, seconds=30)
    monkeypatch.setattr(bus.clock, "now_ms", lambda: int(time.time() * 1000) + 3_600_000)
    [shard] = bus.keys.all_shards()
    assert await waits.expire(bus, shard) == -1


async def test_a_run_s_time_is_paused_while_it_waits(bus: Bus) -> None:
    """The run has 60 s left when it starts a wait of up to an hour, and 60 s afterwards."""
    run_id = await wait_for(bus, seconds=3_600)
    assert (await bus.run_state(run_id)).deadline - time.time() > 3_650
    assert await bus.enforce_deadline(run_id)
    life = await bus.redis.pttl(bus.keys.shard_of(run_id).journal(run_id))
    assert life > 1000 * (3_650 + bus.settings.retention_seconds)
    await send(bus, run_id)
    assert 50 < (await bus.run_state(run_id)).deadline - time.time() <= 61
    assert [run for run, _ in await bus.active_runs()] == [run_id]


async def test_a_waiting_run_can_be_cancelled(bus: Bus) -> None:
    run_id = await wait_for(bus)
    assert await bus.cancel(run_id)
    assert [item async for item in waits.waiting_runs(bus)] == []
    assert (await bus.run_state(run_id)).outcome == "cancelled"
    assert await waits.count_waits(bus) == 0


async def test_a_branch_waits_while_others_continue(bus: Bus, woken: list[Any]) -> None:
    steps: list[int] = []

    async def handler(delivery: Delivery) -> None:
        run_id, turn = delivery.envelope.run_id, delivery.envelope.turn
        branch = delivery.envelope.branch
        steps.append(turn)
        if turn == 0:
            both = tuple(Outgoing("planner", note(run_id, turn=1, branch=b)) for b in range(2))
            join = Join("1", 2, Outgoing("planner", note(run_id, turn=3)))
            await delivery.commit(StepCommit(b"{}", publish=both, join=join))
        elif turn == 1 and branch == 0:
            wait = Wait("paid", Outgoing("planner", woken_note(run_id, turn=2)), "text", 60)
            await delivery.commit(StepCommit(b"{}", wait=wait))
        elif turn == 3:
            await delivery.commit(StepCommit(b"{}", finish=Finish("answered", "42")))
        else:
            await delivery.commit(StepCommit(b"{}", arrive="1"))

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await until(lambda: len(steps) == 3, "both branches took their step")
        assert await send(bus, run_id) in (SignalSent.WOKEN, SignalSent.KEPT)
        await ended(bus, run_id)
    assert sorted(steps) == [0, 1, 1, 2, 3]


async def test_a_replayed_dead_letter_finds_its_run_waiting_again(
    bus: Bus, woken: list[Any]
) -> None:
    broken = [True]

    async def handler(delivery: Delivery) -> None:
        run_id, turn = delivery.envelope.run_id, delivery.envelope.turn
        if turn == 0:
            onward = tuple(Outgoing("planner", note(run_id, turn=1, branch=b)) for b in range(2))
            await delivery.commit(StepCommit(b"{}", publish=onward))
        elif delivery.envelope.branch == 0:
            await delivery.commit(StepCommit(b"{}", wait=waiting(run_id, turn=2)))
        elif broken[0]:
            await until(lambda: has_waits(bus, 1), "the other branch waits")
            raise Reject("broken")
        else:
            await delivery.commit(StepCommit(b"{}"))

    async with serving(bus, ["planner"], handler), serving(bus, ["after"], noting(woken)):
        run_id = await admit(bus)
        await until(lambda: has_letters(bus), "a dead letter")
        assert await waits.count_waits(bus) == 0
        broken[0] = False
        [letter] = await letters(bus)
        await dead_letters.replay(bus, letter.id)
        assert len((await bus.run_state(run_id)).waits) == 1
        assert await send(bus, run_id) is SignalSent.WOKEN
        await ended(bus, run_id)
    assert len(woken) == 1


async def has_waits(bus: Bus, count: int) -> bool:
    return await waits.count_waits(bus) == count


async def has_letters(bus: Bus) -> bool:
    return bool(await letters(bus))


async def test_a_delayed_run_starts_later_and_once(bus: Bus) -> None:
    run_id = new_run_id()
    first = (Outgoing("planner", note(run_id)),)
    admission = Admission(run_id, b"{}", time.time() + 60, first, delay=0.3)
    async with serving(bus, ["planner"], finishing):
        assert await bus.admit(admission)
        assert not await bus.admit(admission)
        [wait] = (await bus.run_state(run_id)).waits
        assert (wait.kind, await bus.queue_lengths(["planner"])) == ("timer", {"planner": 0})
        assert await send(bus, run_id, "start") is SignalSent.KEPT, "no signal wakes a timer"
        await ended(bus, run_id)
    assert (await bus.run_state(run_id)).answer == "42"


async def test_a_parked_step_resumes_when_a_person_decides(bus: Bus) -> None:
    decisions_read: list[dict[str, Any]] = []

    async def handler(delivery: Delivery) -> None:
        state = await delivery.bus.run_state(delivery.envelope.run_id)
        decision = state.decisions.get("call")
        decisions_read.append(json.loads(decision or b"{}"))
        if decision is None:
            await waits.park(delivery, "call", b'{"digest":"d1"}', 60)
        else:
            await delivery.commit(StepCommit(b"{}", finish=Finish("answered", "42")))

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await until(lambda: has_waits(bus, 1), "it waits")
        assert await bus.queue_lengths(["planner"]) == {"planner": 0}
        [waiting_run] = [item async for item in waits.waiting_runs(bus, "approval")]
        assert (
            await waits.decide(bus, waiting_run, "d2", b'{"decision":"approved"}')
            is Decided.CHANGED
        )
        yes, no = b'{"decision":"approved"}', b'{"decision":"denied"}'
        assert await waits.decide(bus, waiting_run, "d1", yes) is Decided.OK
        assert await waits.decide(bus, waiting_run, "d1", yes) is Decided.OK, (
            "after a lost connection"
        )
        assert await waits.decide(bus, waiting_run, "d1", no) is Decided.DECIDED
        await ended(bus, run_id)
    assert decisions_read == [{}, {"decision": "approved"}]


async def test_an_approval_that_times_out_is_decided_automatically(bus: Bus) -> None:
    decisions: list[dict[str, Any]] = []

    async def handler(delivery: Delivery) -> None:
        state = await delivery.bus.run_state(delivery.envelope.run_id)
        if (decision := state.decisions.get("call")) is None:
            await waits.park(delivery, "call", b'{"digest":"d1"}', 0.05)
        else:
            decisions.append(json.loads(decision))
            await delivery.commit(StepCommit(b"{}", finish=Finish("answered", "42")))

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    assert [(item["decision"], item["digest"]) for item in decisions] == [("expired", "d1")]
    gone = WaitingRun(run_id, waits.open_wait_of("0.0", b"approval\ncall\n1\n1\ns\n{}\n\n"))
    assert await waits.decide(bus, gone, "d1", b"{}") is Decided.DECIDED


async def test_a_worker_that_lost_its_lease_cannot_park_a_step(bus: Bus) -> None:
    refused = asyncio.Event()

    async def stale(delivery: Delivery) -> None:
        bus.keeper.release(delivery.lease)
        await ended(bus, delivery.envelope.run_id)
        with pytest.raises((LeaseLost, RunEnded)):
            await waits.park(delivery, "call", b'{"digest":"d1"}', 60)
        refused.set()

    async with serving(bus, ["planner"], stale, places=1) as consumer:
        run_id = await admit(bus)
        await until(lambda: consumer.busy == 1, "the stale worker has it")
        async with serving(bus, ["planner"], finishing):
            await asyncio.wait_for(refused.wait(), 10)
    assert (await bus.run_state(run_id)).waits == ()


async def test_a_wait_takes_less_than_four_kilobytes(bus: Bus) -> None:
    before = await bytes_of(bus)
    run_id = await wait_for(bus)
    with_wait = await bytes_of(bus, run_id)
    await bus.redis.hdel(bus.keys.shard_of(run_id).run(run_id), "wait:1.0")  # pyright: ignore
    await bus.redis.delete(bus.keys.shard_of(run_id).waits)
    assert 0 < with_wait - await bytes_of(bus, run_id) < 4_000
    assert before == 0


async def bytes_of(bus: Bus, run_id: str = "") -> int:
    shard = bus.keys.shard_of(run_id)
    usage = [
        await bus.redis.memory_usage(key, samples=0)  # pyright: ignore
        for key in (shard.run(run_id), shard.waits, shard.signals(run_id))
    ]
    return sum(size or 0 for size in usage)


async def test_admission_stops_when_too_many_runs_wait(bus: Bus) -> None:
    [shard] = bus.keys.all_shards()
    await bus.redis.zadd(shard.waits, {f"run-{number}/1.0": 4e12 for number in range(100_000)})
    await bus.redis.pexpire(shard.waits, 60_000)
    with pytest.raises(Overloaded, match="100000 waits of runs"):
        await admit(bus)


@pytest.mark.parametrize(
    ("wait", "complaint"),
    [
        (waiting("r", "a b"), "not the name of a signal"),
        (waiting("r", seconds=0), "at most 31,622,400 s"),
        (waiting("r", seconds=400 * 86_400), "a year"),
    ],
)
async def test_an_invalid_wait_is_refused_before_it_is_sent(
    bus: Bus, wait: Wait, complaint: str
) -> None:
    complaints: list[str] = []

    async def handler(delivery: Delivery) -> None:
        try:
            await delivery.commit(StepCommit(b"{}", wait=wait))
        except ValueError as error:
            complaints.append(str(error))
        await finishing(delivery)

    async with serving(bus, ["planner"], handler):
        await ended(bus, await admit(bus))
    assert complaint in complaints[0]


async def test_an_invalid_signal_is_refused_before_it_is_sent(bus: Bus) -> None:
    run_id = await admit(bus, "nobody")
    for name, value, signal_id, error in (
        ("a b", b"1", "1", ValueError),
        ("paid", b"1", "", ValueError),
        ("paid", b"1", "a\nb", ValueError),
        ("paid", b"{", "1", ValueError),
        ("paid", b'"' + b"x" * waits.MAX_SIGNAL_BYTES + b'"', "1", MessageTooLarge),
    ):
        with pytest.raises(error):
            await waits.send_signal(bus, run_id, name, value, signal_id)
    assert await send(bus, run_id) is SignalSent.KEPT


async def spent_ms(bus: Bus, run_id: str) -> int:
    """Return the seconds of a budget that an ended run has spent; none may stay reserved."""
    spent, reserved = await counts(bus, f"budget:{run_id}")
    assert reserved.milliseconds == 0
    return spent.milliseconds


@pytest.mark.parametrize("how", ["begins later", "waits for a signal"])
async def test_waiting_spends_no_budget_seconds(bus: Bus, woken: list[Any], how: str) -> None:
    run_id, delay, begun = new_run_id(), 0.4, time.monotonic()

    async def handler(delivery: Delivery) -> None:
        if how == "waits for a signal":
            await delivery.commit(StepCommit(b"{}", wait=waiting(run_id, seconds=delay)))
        else:
            await finishing(delivery)

    scope = Scope(f"budget:{run_id}", Limits(milliseconds=100_000))
    async with serving(bus, ["planner"], handler), serving(bus, ["after"], noting(woken)):
        await bus.admit(
            Admission(
                run_id, b"{}", bus.clock.now() + 60, (Outgoing("planner", note(run_id)),),
                scopes=(scope,), delay=delay if how == "begins later" else 0.0,
            )
        )  # fmt: skip
        await ended(bus, run_id)
    lasted = 1000 * (time.monotonic() - begun)
    assert lasted > 1000 * delay
    assert await spent_ms(bus, run_id) < lasted - 900 * delay
