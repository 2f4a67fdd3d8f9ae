"""Each run ends once, with its trajectory, and its work stops."""

from __future__ import annotations

import asyncio
import time

import pytest
import redis
from structlog.testing import capture_logs

from loopline.bus import (
    BudgetExceeded,
    Bus,
    BusSettings,
    BusUnavailable,
    DeadlineExceeded,
    Delivery,
    Finish,
    Inbox,
    Outgoing,
    Retry,
    RunEnded,
    StepCommit,
    UserCancelled,
    run_ended,
)
from loopline.testing import RedisProcess
from tests.bus.payloads import Note, admit, note
from tests.bus.serving import ended, finishing, pending, serving, until


async def test_a_cancel_stops_the_handler_and_drops_its_message(bus: Bus) -> None:
    working, stopped = asyncio.Event(), asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        working.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await working.wait()
        assert await bus.cancel(run_id)
        cancelled = time.monotonic()
        await asyncio.wait_for(stopped.wait(), 10)
        assert time.monotonic() - cancelled < bus.settings.lease_seconds
        await until(lambda: _nothing_in_hand(bus), "the message is settled")
    state = await bus.run_state(run_id)
    assert (state.outcome, state.reason) == ("cancelled", "cancelled by its user")
    assert await bus.queue_lengths(["planner"]) == {"planner": 0}


async def _nothing_in_hand(bus: Bus) -> bool:
    return await pending(bus, "planner") == 0


async def test_a_handler_that_needs_time_to_stop_is_cancelled_once(bus: Bus) -> None:
    """A second cancellation would interrupt the clean-up and the settling after it."""
    events: list[str] = []
    working = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        working.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            over = time.monotonic() + 2 * bus.settings.lease_seconds
            await until(lambda: time.monotonic() > over, "cleaning up")
            events.append("clean")
            raise

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await working.wait()
        await bus.cancel(run_id)
        await until(lambda: events == ["cancelled", "clean"], "one cancellation, then clean")
        await until(lambda: _nothing_in_hand(bus), "the message is settled")
    assert await bus.queue_lengths(["planner"]) == {"planner": 0}


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ("cancelled", UserCancelled), ("deadline", DeadlineExceeded), ("budget", BudgetExceeded),
        ("answered", RunEnded), ("error", RunEnded), ("", RunEnded),
    ],
)  # fmt: skip
def test_the_error_type_tells_why_a_run_ended(outcome: str, kind: type[RunEnded]) -> None:
    error = run_ended("r", outcome)
    assert type(error) is kind
    assert "run r is over" in str(error)


async def test_a_commit_after_a_cancel_changes_nothing_but_its_message(bus: Bus) -> None:
    refused = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        await bus.cancel(delivery.envelope.run_id)
        onward = Outgoing("slm", note(delivery.envelope.run_id, turn=1))
        with pytest.raises(UserCancelled):
            await delivery.commit(StepCommit(b"{}", tokens=9, publish=(onward,)))
        refused.set()

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus)
        await asyncio.wait_for(refused.wait(), 10)
    state = await bus.run_state(run_id)
    assert (state.outcome, state.steps, state.tokens) == ("cancelled", (), 0)
    assert await bus.queue_lengths(["planner", "slm"]) == {"planner": 0, "slm": 0}


async def test_a_cancel_concurrent_with_the_last_commit_ends_the_run_once(bus: Bus) -> None:
    async def handler(delivery: Delivery) -> None:
        await asyncio.gather(
            bus.cancel(delivery.envelope.run_id), finishing(delivery), return_exceptions=True
        )

    async with serving(bus, ["planner"], handler):
        runs = [await admit(bus) for _ in range(30)]
        for run_id in runs:
            await ended(bus, run_id)
    entries = await bus.redis.xrange(bus.keys.shard(0).trajectories)
    assert sorted(fields[b"run_id"].decode() for _, fields in entries) == sorted(runs)
    for _, fields in entries:
        steps = b'["done"]' if fields[b"outcome"] == b"answered" else b"[]"
        assert fields[b"steps"] == steps


async def test_a_run_ends_at_its_deadline_although_its_handler_still_works(bus: Bus) -> None:
    stopped = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with serving(bus, ["planner"], handler):
        began = time.monotonic()
        run_id = await admit(bus, seconds=0.5)
        await ended(bus, run_id)
        took = time.monotonic() - began
        await asyncio.wait_for(stopped.wait(), 10)
        await until(lambda: _nothing_in_hand(bus), "the message is settled")
    assert took >= 0.5
    assert (await bus.run_state(run_id)).outcome == "deadline"
    assert not await bus.end_run(run_id, "deadline", "again", only_if_overdue=True)


async def test_a_run_that_failed_until_its_deadline_reports_its_last_failure(bus: Bus) -> None:
    async def handler(delivery: Delivery) -> None:
        raise Retry("no endpoint " + "x" * 10_000, 60)

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus, seconds=0.5)
        await ended(bus, run_id)
    state = await bus.run_state(run_id)
    assert (state.outcome, state.failure[:12]) == ("deadline", "no endpoint ")
    assert state.reason.startswith("its deadline passed; last error: no endpoint xxx")
    assert len(state.reason) < 1_100, "bounded"


async def test_a_failure_that_was_overcome_is_forgotten(bus: Bus) -> None:
    failures: list[str] = []

    async def handler(delivery: Delivery) -> None:
        run_id = delivery.envelope.run_id
        failures.append((await bus.run_state(run_id)).failure)
        if len(failures) == 1:
            raise Retry("not yet", 0.01)
        onward = Outgoing("slm", note(run_id, turn=1))
        await delivery.commit(StepCommit(b"{}", publish=(onward,)))

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus, seconds=1)
        await ended(bus, run_id)
    assert failures == ["", "not yet"]
    assert (await bus.run_state(run_id)).reason == "its deadline passed"


async def test_a_run_over_its_money_limit_ends_without_handing_over(bus: Bus) -> None:
    over: list[bool] = []

    async def handler(delivery: Delivery) -> None:
        onward = Outgoing("slm", note(delivery.envelope.run_id, turn=1))
        over.append(await delivery.commit(StepCommit(b"{}", micro_dollars=11, publish=(onward,))))

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus, micro_dollars=10)
        await ended(bus, run_id)
    state = await bus.run_state(run_id)
    assert (state.outcome, state.micro_dollars, over) == ("budget", 11, [True])
    assert "11 micro-dollars of 10" in state.reason
    assert len(state.steps) == 1, "the step that was paid for is in the journal"
    assert await bus.queue_lengths(["slm"]) == {"slm": 0}


async def test_an_answer_that_uses_the_last_token_counts(bus: Bus) -> None:
    async def handler(delivery: Delivery) -> None:
        await delivery.commit(StepCommit(b"{}", tokens=101, finish=Finish("answered", "42")))

    async with serving(bus, ["planner"], handler):
        run_id = await admit(bus, tokens=100)
        await ended(bus, run_id)
    assert (await bus.run_state(run_id)).outcome == "answered"


async def test_an_unknown_run_cannot_be_ended(bus: Bus) -> None:
    assert not await bus.cancel("no-such-run")
    assert (await bus.run_state("no-such-run")).state == "missing"
    assert not await bus.is_active("no-such-run")


async def test_a_waiting_client_ends_its_run_at_the_deadline_if_no_worker_is_left(
    bus: Bus,
) -> None:
    run_id = await admit(bus, seconds=0.3)
    async with Inbox(bus) as inbox:
        await inbox.wait_ended(run_id)
    state = await bus.run_state(run_id)
    assert (state.outcome, state.reason) == ("deadline", "its deadline passed")


async def test_a_follower_ends_its_run_at_the_deadline_if_no_worker_is_left(bus: Bus) -> None:
    run_id = await admit(bus, seconds=0.3)
    events = [fields async for _, fields in bus.follow(run_id)]
    assert [event["outcome"] for event in events if event["type"] == "ended"] == ["deadline"]


async def test_a_run_can_be_cancelled_and_read_on_a_full_server(
    own_server: RedisProcess,
) -> None:
    settings = BusSettings(redis_url=own_server.url, prefix="full")
    async with Bus(settings, patience=0.0) as bus:
        bus.registry.register("note", Note)
        run_id = await admit(bus)
        with redis.Redis.from_url(own_server.url) as admin:
            admin.config_set("maxmemory", "1")
            assert await bus.cancel(run_id)
            assert (await bus.run_state(run_id)).outcome == "cancelled"
            admin.config_set("maxmemory", "0")


async def test_a_command_gives_up_on_a_server_that_cannot_end_its_run(
    own_server: RedisProcess,
) -> None:
    settings = BusSettings(redis_url=own_server.url, prefix="still")
    async with Bus(settings, patience=0.0) as bus:
        bus.registry.register("note", Note)
        run_id = await admit(bus)
        with redis.Redis.from_url(own_server.url) as admin:
            admin.replicaof("127.0.0.1", "1")
            with pytest.raises(BusUnavailable, match=r"end run: Redis at .*it is a replica"):
                await bus.cancel(run_id)
            admin.replicaof("NO", "ONE")
        assert await bus.cancel(run_id)


def _ten_minutes(attempt: int) -> float:
    return 600.0


async def test_a_follower_reads_the_end_while_the_shared_read_pauses_after_an_outage(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.bus.log_follower.pause_before", _ten_minutes)
    run_id = await admit(bus)
    events: list[str] = []

    async def follow() -> None:
        async for _, event in bus.follow(run_id):
            events.append(event["type"])

    with capture_logs() as lines:
        following = asyncio.create_task(follow())

        async def is_pausing() -> bool:
            await bus.redis.client_kill_filter(_type="normal", skipme=True)
            return any(line["event"] == "logs unreadable" for line in lines)

        await until(is_pausing, "the shared read has failed")
    async with serving(bus, ["planner"], finishing):
        await asyncio.wait_for(following, 20)
    assert events[-1] == "ended"
