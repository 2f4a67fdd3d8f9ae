"""A step's commit is atomic, and only the lease's holder can make it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from loopline.bus import (
    Bus,
    Delivery,
    Finish,
    Join,
    LeaseLost,
    Outgoing,
    Retry,
    RunEnded,
    StepCommit,
)
from loopline.bus import commit as commits
from tests.bus.payloads import admit, note
from tests.bus.serving import ended, finishing, letters, serving, until


async def test_a_run_passes_through_two_roles_and_ends_with_its_whole_journal(bus: Bus) -> None:
    async def handler(delivery: Delivery) -> None:
        step = json.dumps({"at": delivery.stream}).encode()
        if delivery.stream == "planner":
            onward = Outgoing("slm", note(delivery.envelope.run_id, "easy", turn=1))
            await delivery.commit(StepCommit(step, tokens=3, publish=(onward,)))
        else:
            await delivery.commit(StepCommit(step, tokens=4, finish=Finish("answered", "42")))

    async with serving(bus, ["planner", "slm"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    state = await bus.run_state(run_id)
    assert [json.loads(step)["at"] for step in state.steps] == ["planner", "slm"]
    assert (state.outcome, state.answer, state.tokens) == ("answered", "42", 7)
    shard = bus.keys.shard_of(run_id)
    [(_, trajectory)] = await bus.redis.xrange(shard.trajectories)
    assert json.loads(trajectory[b"steps"]) == [{"at": "planner"}, {"at": "slm"}]
    assert await bus.queue_lengths(["planner", "slm"]) == {"planner": 0, "slm": 0}


async def test_the_continuation_of_a_fan_out_comes_once_when_every_branch_has_arrived(
    bus: Bus,
) -> None:
    continued: list[int] = []

    async def handler(delivery: Delivery) -> None:
        run_id, turn = delivery.envelope.run_id, delivery.envelope.turn
        if turn == 0:
            branches = tuple(Outgoing("slm", note(run_id, turn=1, branch=b)) for b in range(5))
            join = Join("1", 5, Outgoing("planner", note(run_id, turn=2)))
            await delivery.commit(StepCommit(b"{}", publish=branches, join=join))
        elif turn == 1:
            await delivery.commit(StepCommit(b"{}", arrive="1"))
        else:
            continued.append(turn)
            await delivery.commit(StepCommit(b"{}", finish=Finish("answered")))

    async with serving(bus, ["planner", "slm"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    assert continued == [2]
    assert len((await bus.run_state(run_id)).steps) == 7


async def test_a_worker_that_lost_its_lease_cannot_commit(bus: Bus) -> None:
    refused = asyncio.Event()
    first = asyncio.Event()

    async def stale(delivery: Delivery) -> None:
        bus.keeper.release(delivery.lease)  # as if this process had been stopped
        first.set()
        await ended(bus, delivery.envelope.run_id)
        with pytest.raises(LeaseLost):
            await delivery.commit(StepCommit(b'"stale"', finish=Finish("answered", "wrong")))
        refused.set()

    async def fresh(delivery: Delivery) -> None:
        await delivery.commit(StepCommit(b'"fresh"', finish=Finish("answered", "right")))

    async with serving(bus, ["planner"], stale, places=1):
        run_id = await admit(bus)
        await first.wait()
        async with serving(bus, ["planner"], fresh):
            await asyncio.wait_for(refused.wait(), 10)
    state = await bus.run_state(run_id)
    assert state.answer == "right"
    assert state.steps == (b'"fresh"',)


async def test_a_run_over_its_token_budget_ends_with_that_outcome(bus: Bus) -> None:
    async def handler(delivery: Delivery) -> None:
        onward = Outgoing(
            "planner", note(delivery.envelope.run_id, turn=delivery.envelope.turn + 1)
        )
        await delivery.commit(StepCommit(b"{}", tokens=40, publish=(onward,)))

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus, tokens=100)
        await ended(bus, run_id)
    state = await bus.run_state(run_id)
    assert (state.outcome, state.tokens, len(state.steps)) == ("budget", 120, 3)
    assert "120 tokens of 100" in state.reason


async def test_a_message_whose_handler_raises_is_retried_and_then_kept_with_its_traceback(
    bus: Bus,
) -> None:
    tries: list[int] = []

    async def handler(delivery: Delivery) -> None:
        tries.append(delivery.envelope.attempt)
        raise ValueError("no such luck")

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    [letter] = await letters(bus)
    assert len(tries) == bus.settings.max_attempts
    assert "no such luck" in letter.reason
    assert "Traceback" in letter.traceback
    assert (await bus.run_state(run_id)).outcome == "error"


async def test_a_commit_whose_answer_was_lost_is_applied_once(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server applied the commit, the connection broke, and the same commit is sent again:
    'already'."""
    send: Any = bus.redis.evalsha
    answers: list[Any] = []

    async def cut(*args: Any) -> Any:
        answer = await send(*args)
        if isinstance(answer, list) and answer and answer[0] in (b"ok", b"already"):
            answers.append(answer[0])
            if len(answers) == 1:
                raise RedisConnectionError("cut after it was applied")
        return answer

    monkeypatch.setattr(bus.redis, "evalsha", cut)

    async def handler(delivery: Delivery) -> None:
        await delivery.commit(StepCommit(b"{}", tokens=5, finish=Finish("answered", "42")))

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    state = await bus.run_state(run_id)
    assert (len(state.steps), state.tokens, state.answer) == (1, 5, "42")
    assert len(await bus.redis.xrange(bus.keys.shard_of(run_id).trajectories)) == 1


async def test_a_second_commit_of_one_delivery_changes_nothing(bus: Bus) -> None:
    second: list[bool] = []

    async def handler(delivery: Delivery) -> None:
        onward = Outgoing("nobody", note(delivery.envelope.run_id, turn=1))
        for _ in range(2):
            second.append(await delivery.commit(StepCommit(b"{}", tokens=1, publish=(onward,))))

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await until(lambda: len(second) == 2, "both commits")
    state = await bus.run_state(run_id)
    assert second == [False, False]
    assert (len(state.steps), state.tokens) == (1, 1)
    assert await bus.queue_lengths(["nobody"]) == {"nobody": 1}


async def test_a_step_already_in_the_journal_is_refused_and_its_message_settled(bus: Bus) -> None:
    """Two messages for one (turn, branch): the second commit finds the step taken."""
    refusals: list[str] = []

    async def handler(delivery: Delivery) -> None:
        run_id = delivery.envelope.run_id
        if delivery.stream == "planner":
            twice = tuple(Outgoing("slm", note(run_id, text, turn=1)) for text in "ab")
            await delivery.commit(StepCommit(b"0", publish=twice))
            return
        try:
            await delivery.commit(StepCommit(b"1"))
        except RunEnded as error:
            refusals.append(str(error))

    async with serving(bus, ["planner", "slm"], handler):
        run_id = await admit(bus)
        async for _, event in bus.follow(run_id):
            if refusals or event.get("index") == "1":
                break
    assert (await bus.run_state(run_id)).steps == (b"0", b"1")
    assert await bus.queue_lengths(["planner", "slm"]) == {"planner": 0, "slm": 0}


@pytest.mark.parametrize(
    ("commit", "complaint"),
    [
        (StepCommit(b"{}", tokens=-1), "tokens"),
        (StepCommit(b"{}", tokens=2**60), "tokens"),
        (StepCommit(b"{}", micro_dollars=0.5), "micro_dollars"),  # pyright: ignore[reportArgumentType]
        (StepCommit(b"{}", join=Join("1", 0, Outgoing("slm", note("r")))), "0 branches"),
        (StepCommit(b"{}", finish=Finish("")), "outcome"),
        (StepCommit(b"{}", arrive="1", finish=Finish("answered")), "can't hand over"),
    ],
)
async def test_a_commit_that_the_script_cannot_finish_is_refused_before_it_starts(
    bus: Bus, commit: StepCommit, complaint: str
) -> None:
    refusals: list[str] = []

    async def handler(delivery: Delivery) -> None:
        try:
            await delivery.commit(commit)
        except ValueError as error:
            refusals.append(str(error))
        await finishing(delivery)

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    assert complaint in refusals[0]
    assert (await bus.run_state(run_id)).steps == (b'"done"',)


async def test_a_step_over_the_size_limit_becomes_a_dead_letter_with_the_reason(bus: Bus) -> None:
    async def handler(delivery: Delivery) -> None:
        await delivery.commit(StepCommit(b"x" * (bus.settings.max_message_bytes + 1)))

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    [letter] = await letters(bus)
    assert "max_message_bytes" in letter.reason
    assert (await bus.run_state(run_id)).steps == ()


async def test_each_commit_of_a_batch_has_its_own_result(bus: Bus) -> None:
    """Half of them lost their lease; the other half succeeds in the same script call."""
    results: dict[str, str] = {}
    arrived: list[str] = []

    async def handler(delivery: Delivery) -> None:
        run_id = delivery.envelope.run_id
        arrived.append(run_id)
        await until(lambda: len(arrived) >= 40, "all deliveries in hand")
        if int(delivery.envelope.payload["text"]) % 2:
            # Another worker claims it: the delivery count rises, and the token no longer fits. The
            # keeper must not notice first: it would cancel this handler.
            bus.keeper.release(delivery.lease)
            await bus.redis.xclaim(
                delivery.lease.stream, "workers", "thief", 0, [delivery.lease.entry]
            )
        try:
            await delivery.commit(StepCommit(b"{}", finish=Finish("answered")))
            results[run_id] = "ok"
        except LeaseLost:
            results[run_id] = "lost"

    async with serving(bus, ["planner"], handler, places=40):
        runs = [await admit(bus, text=str(number)) for number in range(40)]
        for run_id in runs[::2]:
            await ended(bus, run_id)
    assert [results[run_id] for run_id in runs] == ["ok", "lost"] * 20


HALF = "half a pair: \ud800"


@pytest.mark.parametrize(
    ("spoilt", "named"),
    [
        (StepCommit(b"{}", finish=Finish("answered", HALF)), "finish.answer"),
        (StepCommit(b"{}", finish=Finish(HALF)), "finish.outcome"),
        (StepCommit(b"{}", arrive=HALF), "arrive"),
        (StepCommit(b"{}", publish=(Outgoing(HALF, note("r")),)), "publish.stream"),
        (StepCommit(b"{}", join=Join(HALF, 1, Outgoing("slm", note("r")))), "join.id"),
        (StepCommit(b"{}", join=Join("1", 1, Outgoing(HALF, note("r")))), "continuation.stream"),
    ],
)
async def test_an_unencodable_text_fails_only_its_own_commit(
    bus: Bus, spoilt: StepCommit, named: str
) -> None:
    """Both are queued at once, so that they would travel in one batch."""
    async with two_in_hand(bus) as (bad, good):
        failed, done = await asyncio.gather(
            bad.commit(spoilt), good.commit(StepCommit(b"{}", finish=Finish("answered"))),
            return_exceptions=True,
        )  # fmt: skip
        await finishing(bad)
    assert done is False
    assert isinstance(failed, ValueError)
    assert f"{named}: half a surrogate pair" in str(failed)


async def test_unencodable_characters_of_a_reason_become_question_marks(bus: Bus) -> None:
    async with two_in_hand(bus) as (first, second):
        await first.commit(StepCommit(b"{}", finish=Finish("error", "", HALF)))
        await finishing(second)
    state = await bus.run_state(first.envelope.run_id)
    assert (state.outcome, state.reason) == ("error", "half a pair: ?")


@asynccontextmanager
async def two_in_hand(bus: Bus) -> AsyncGenerator[tuple[Delivery, Delivery]]:
    """Return two leased messages for the caller to settle."""
    deliveries: list[Delivery] = []
    settled = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        deliveries.append(delivery)
        await settled.wait()

    async with serving(bus, ["planner"], handler):
        await admit(bus)
        await admit(bus)
        await until(lambda: len(deliveries) == 2, "both in hand")
        try:
            yield deliveries[0], deliveries[1]
        finally:
            settled.set()


async def test_a_step_is_not_committed_on_a_stale_reply(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "REPLY_WAIT_SECONDS", 0.0)
    committed: list[str] = []

    async def handler(delivery: Delivery) -> None:
        shard, run_id = delivery.shard, delivery.envelope.run_id
        if not delivery.envelope.attempt:
            # This worker no longer holds the request: another one has taken it over and answers it.
            keys = [shard.work("slm"), shard.request("k"), shard.run(run_id), shard.usage(run_id),
                    shard.ledger]  # fmt: skip
            guard = delivery.envelope.guard
            reply = bus.committer(shard).reply_later(
                delivery.envelope, keys, ["workers", "1-1", "me", 1, b"{}", 1, 1000, guard, "inbox"]
            )
            committed.append(await reply)
        finish = Finish("answered", "42")
        try:
            await delivery.commit(StepCommit(b"{}", finish=finish))
        except Retry:
            committed.append("refused")
            raise

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    assert committed == ["lost", "refused"]
    assert len((await bus.run_state(run_id)).steps) == 1
