"""Dead letters are listed, shown, replayed once and purged; a replayed run resumes at its
position."""

from __future__ import annotations

import asyncio

import pytest

from loopline.bus import (
    Bus,
    BusError,
    Delivery,
    Finish,
    Inbox,
    Join,
    Outgoing,
    Reject,
    RequestError,
    StepCommit,
    dead_letters,
)
from tests.bus.payloads import admit, note
from tests.bus.serving import ended, finishing, letters, pending, serving, until


async def reject(delivery: Delivery) -> None:
    raise Reject("the oracle is silent")


async def buried(bus: Bus, stream: str = "planner") -> str:
    """Create a run whose first message is a dead letter; return its id."""
    async with serving(bus, [stream], reject):
        run_id = await admit(bus, stream, text="hear me")
        await ended(bus, run_id)
    return run_id


async def test_a_letter_shows_its_stream_its_reason_and_its_whole_envelope(bus: Bus) -> None:
    run_id = await buried(bus)
    [listed] = await letters(bus)
    letter = await dead_letters.show(bus, listed.id)
    assert letter == listed
    assert (letter.stream, letter.run_id, letter.reason) == (
        "planner", run_id, "the oracle is silent",
    )  # fmt: skip
    assert b"hear me" in letter.envelope
    assert letter.deliveries == 1


async def test_each_letter_is_listed_once_newest_first(bus: Bus) -> None:
    async with serving(bus, ["planner"], reject, places=32):
        runs = [await admit(bus) for _ in range(230)]
        for run_id in runs:
            await ended(bus, run_id)
    listed = await letters(bus)
    assert {letter.run_id for letter in listed} == set(runs)
    assert len(listed) == 230
    assert [letter.at for letter in listed] == sorted(
        (letter.at for letter in listed), reverse=True
    )


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "x", "0", "0/1", "7/1-1", "-1/1-1"),
        *("\u00b2/1-1", "0/x-1", "0/1-", "0/1-1-1", f"0/{'9' * 20}-1"),
    ],
)
async def test_an_invalid_letter_id_is_refused_with_an_example(bus: Bus, wrong: str) -> None:
    with pytest.raises(BusError, match=r"not a dead letter's id \(like 0/"):
        await dead_letters.show(bus, wrong)


async def test_a_missing_letter_is_reported(bus: Bus) -> None:
    with pytest.raises(BusError, match="runtime dead ls"):
        await dead_letters.show(bus, "0/1718000000000-0")


async def test_a_replayed_run_resumes_and_ends_a_second_time(bus: Bus) -> None:
    run_id = await buried(bus)
    [letter] = await letters(bus)
    assert await dead_letters.replay(bus, letter.id) == "planner"
    assert await bus.is_active(run_id)
    async with serving(bus, ["planner"], finishing):
        await ended(bus, run_id)
    state = await bus.run_state(run_id)
    assert (state.outcome, state.steps) == ("answered", (b'"done"',))
    entries = await bus.redis.xrange(bus.keys.shard_of(run_id).trajectories)
    assert [(fields[b"outcome"], fields[b"generation"]) for _, fields in entries] == [
        (b"error", b"0"), (b"answered", b"1"),
    ]  # fmt: skip
    assert await letters(bus) == []


async def test_when_two_operators_replay_a_letter_the_second_learns_that_it_is_gone(
    bus: Bus,
) -> None:
    await buried(bus)
    [letter] = await letters(bus)
    answers = await asyncio.gather(
        *(dead_letters.replay(bus, letter.id) for _ in range(2)), return_exceptions=True
    )
    assert sorted(str(answer) for answer in answers)[0].startswith(
        f"dead letter {letter.id} can't be replayed"
    ) or "no dead letter" in str(answers)
    assert answers.count("planner") == 1
    assert await bus.queue_lengths(["planner"]) == {"planner": 1}


async def test_a_letter_is_not_replayed_after_its_journal_expired(bus: Bus) -> None:
    run_id = await buried(bus)
    [letter] = await letters(bus)
    await bus.redis.delete(bus.keys.shard_of(run_id).run(run_id))
    with pytest.raises(BusError, match=f"journal of run {run_id} has expired"):
        await dead_letters.replay(bus, letter.id)
    assert len(await letters(bus)) == 1, "the letter stays"
    assert await bus.queue_lengths(["planner"]) == {"planner": 0}


async def test_a_letter_of_a_cancelled_run_is_not_replayed(bus: Bus) -> None:
    async def cancel_then_reject(delivery: Delivery) -> None:
        await bus.cancel(delivery.envelope.run_id)
        raise Reject("too late")

    async with serving(bus, ["planner"], cancel_then_reject):
        await admit(bus)

        async def is_buried() -> bool:
            return len(await letters(bus)) == 1

        await until(is_buried, "the letter")
    [letter] = await letters(bus)
    with pytest.raises(BusError, match="ended in another way"):
        await dead_letters.replay(bus, letter.id)


async def test_replaying_a_request_without_a_waiter_fails_and_keeps_its_letter(bus: Bus) -> None:
    run_id = await admit(bus)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], reject):
        with pytest.raises(RequestError, match="oracle"):
            await inbox.request("infer", note(run_id, key="k"))
    await bus.cancel(run_id)
    [letter] = await letters(bus)
    with pytest.raises(BusError, match="nobody waits"):
        await dead_letters.replay(bus, letter.id)
    assert await letters(bus) == [letter]


@pytest.mark.bus_settings(retention_seconds=30.0)
async def test_a_replay_extends_the_journal_s_life_to_that_of_its_run(bus: Bus) -> None:
    """An ended run's keys live for the retention; after a replay they must outlive its deadline."""
    async with Bus(bus.settings, bus.registry) as short:

        async def step_then_reject(delivery: Delivery) -> None:
            if delivery.envelope.turn:
                raise Reject("no more")
            onward = Outgoing("planner", note(delivery.envelope.run_id, turn=1))
            await delivery.commit(StepCommit(b'"first"', publish=(onward,)))

        async with serving(short, ["planner"], step_then_reject):
            run_id = await admit(short)
            await ended(short, run_id)
        [letter] = await letters(short)
        await dead_letters.replay(short, letter.id)
        shard = short.keys.shard_of(run_id)
        for key in (shard.run(run_id), shard.journal(run_id), shard.log(run_id)):
            assert await short.redis.pttl(key) > dead_letters.REPLAY_SECONDS * 1000
        async with serving(short, ["planner"], finishing):
            events: list[str] = []
            async for _, event in short.follow(run_id):
                events.append(event["type"])
        # A follower from the start reads past the end that the replay withdrew.
        assert events == ["step", "ended", "step", "ended"]
        assert (await short.run_state(run_id)).steps == (b'"first"', b'"done"')


async def test_a_replay_restores_the_branches_that_ended_with_the_run(bus: Bus) -> None:
    """One branch dies and ends the run; its siblings are settled; the replay needs them all."""
    poisoned = True
    release = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        run_id, turn, branch = (
            delivery.envelope.run_id, delivery.envelope.turn, delivery.envelope.branch,
        )  # fmt: skip
        if turn == 0:
            branches = tuple(Outgoing("slm", note(run_id, turn=1, branch=b)) for b in range(4))
            join = Join("1", 4, Outgoing("planner", note(run_id, turn=2)))
            await delivery.commit(StepCommit(b"{}", publish=branches, join=join))
        elif turn == 1:
            if poisoned and branch == 2:
                await until(lambda: _in_hand(bus, 4), "all branches at work")
                raise Reject("branch 2 is ill")
            if poisoned:
                await release.wait()
            await delivery.commit(StepCommit(b"{}", arrive="1"))
        else:
            await delivery.commit(StepCommit(b"{}", finish=Finish("answered")))

    async with serving(bus, ["planner", "slm"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
        release.set()  # the siblings commit or are cancelled, and find the run ended
        await until(lambda: _in_hand(bus, 0), "the sisters are settled")
        assert (await bus.run_state(run_id)).outcome == "error"
        poisoned = False
        [letter] = await letters(bus)
        await dead_letters.replay(bus, letter.id)
        await ended(bus, run_id)
    state = await bus.run_state(run_id)
    assert (state.outcome, len(state.steps)) == ("answered", 6)


async def _in_hand(bus: Bus, count: int) -> bool:
    return await pending(bus, "slm") == count


async def test_a_dead_request_answers_its_waiter_and_leaves_the_run_alive(bus: Bus) -> None:
    run_id = await admit(bus)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], reject):
        with pytest.raises(RequestError, match="the oracle is silent") as caught:
            await asyncio.wait_for(inbox.request("infer", note(run_id, key="k")), 20)
    assert (caught.value.kind, caught.value.retryable) == ("dead_letter", False)
    assert await bus.is_active(run_id)
    [letter] = await letters(bus)
    await dead_letters.replay(bus, letter.id)
    assert await bus.queue_lengths(["infer"]) == {"infer": 1}


async def test_an_operator_can_purge_one_letter_or_all(bus: Bus) -> None:
    for _ in range(3):
        await buried(bus)
    first = (await letters(bus))[0]
    assert await dead_letters.purge(bus, first.id) == 1
    assert await dead_letters.purge(bus, first.id) == 0
    assert await dead_letters.purge(bus) == 2
    assert await letters(bus) == []


async def test_unencodable_characters_of_a_reason_become_question_marks(bus: Bus) -> None:
    async def handler(delivery: Delivery) -> None:
        raise Reject("half a pair: \ud800")

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    [letter] = await letters(bus)
    assert letter.reason == "half a pair: ?"


async def test_unencodable_characters_of_a_traceback_become_question_marks(
    bus: Bus,
) -> None:
    async def handler(delivery: Delivery) -> None:
        raise ValueError("half a pair: \ud800")

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await ended(bus, run_id)
    [letter] = await letters(bus)
    assert "half a pair: ?" in letter.traceback


async def test_the_caller_receives_a_reason_that_any_message_can_carry(bus: Bus) -> None:
    """The text becomes part of a step, which is stored as JSON."""

    async def handler(delivery: Delivery) -> None:
        raise Reject("half a pair: \ud800")

    async with serving(bus, ["infer"], handler), Inbox(bus) as inbox:
        run_id = await admit(bus, "other")
        with pytest.raises(RequestError, match="half a pair: \\?"):
            await inbox.request("infer", note(run_id, key=f"{run_id}/0"))
