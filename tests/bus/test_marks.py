"""A call that may be paid for is marked before it is sent: the ledger records an unaccounted call
once as unknown, whichever process dies when."""

from __future__ import annotations

import pytest

from loopline.bus import (
    Bus,
    Delivery,
    Finish,
    LeaseLost,
    RunEnded,
    StepCommit,
    dead_letters,
    scripts,
)
from loopline.bus.envelope import FIELD, Envelope
from loopline.bus.keys import GROUP
from loopline.bus.lease import Lease
from tests.bus.leasing import ask, take
from tests.bus.payloads import Note, admit
from tests.bus.serving import letters

UNKNOWN, USED, DISCARDED = b'"unknown"', b'"used"', b'"discarded"'
REPLY = b'"42"'


async def asked(bus: Bus) -> tuple[str, Delivery]:
    """Return a run, and its request in a worker's hands."""
    run_id = await admit(bus)
    await ask(bus, run_id)
    return run_id, await take(bus, run_id, "first")


async def entered(bus: Bus, run_id: str) -> list[bytes]:
    """Return the run's usage, which must equal the ledger's stream."""
    stream = await bus.redis.xrange(bus.keys.shard_of(run_id).ledger)
    usage = await bus.usage(run_id)
    assert [fields[b"usage"] for _, fields in stream] == usage
    return usage


async def test_an_answered_call_leaves_its_usage_and_no_mark(bus: Bus) -> None:
    run_id, delivery = await asked(bus)
    await delivery.mark(1, UNKNOWN)
    await delivery.reply(REPLY, store=True, usage=[(USED, DISCARDED)])
    assert await bus.cancel(run_id)
    assert await entered(bus, run_id) == [USED]


async def test_a_takeover_records_the_dead_worker_s_calls_once_before_the_next_is_sent(
    bus: Bus,
) -> None:
    run_id, first = await asked(bus)
    await first.mark(1, UNKNOWN)
    second = await take(bus, run_id, "second", after=first)
    await second.mark(1, b'"second"')
    assert await entered(bus, run_id) == [UNKNOWN]
    await second.mark(1, b'"second"')  # its answer was lost on the way
    await second.reply(REPLY, store=True, usage=[(USED, DISCARDED)])
    assert await entered(bus, run_id) == [UNKNOWN, USED]


async def test_a_reply_without_calls_still_records_the_calls_of_an_earlier_holder(
    bus: Bus,
) -> None:
    run_id, first = await asked(bus)
    await first.mark(1, UNKNOWN)
    second = await take(bus, run_id, "second", after=first)
    await second.reply(REPLY, store=False)
    assert await entered(bus, run_id) == [UNKNOWN]


async def test_the_end_of_a_run_records_calls_of_workers_that_never_came_back(bus: Bus) -> None:
    run_id, delivery = await asked(bus)
    await delivery.mark(1, UNKNOWN)
    assert await bus.cancel(run_id)
    assert await entered(bus, run_id) == [UNKNOWN]
    # The worker was alive: its late entry has the same name, so readers can recognize it.
    await delivery.reply(REPLY, store=True, usage=[(USED, DISCARDED)])
    assert await entered(bus, run_id) == [UNKNOWN, USED]


async def test_a_failed_run_records_open_calls_and_its_replay_records_none_twice(
    bus: Bus,
) -> None:
    run_id, delivery = await asked(bus)
    await delivery.mark(1, UNKNOWN)
    step = await take_step(bus, run_id)
    await dead_letters.add_dead_letter(
        bus, step.shard, "planner", step.lease, step.envelope.to_json(), "why",
        envelope=step.envelope,
    )  # fmt: skip
    assert await entered(bus, run_id) == [UNKNOWN]
    (letter,) = await letters(bus)
    await dead_letters.replay(bus, letter.id)
    assert await bus.cancel(run_id)
    assert await entered(bus, run_id) == [UNKNOWN]


async def test_a_step_s_commit_records_its_abandoned_call(bus: Bus) -> None:
    run_id, delivery = await asked(bus)
    await delivery.mark(1, UNKNOWN)
    step = await take_step(bus, run_id)
    await step.commit(StepCommit(b"{}", finish=Finish("answered")))
    assert await entered(bus, run_id) == [UNKNOWN]


async def test_no_call_is_sent_for_a_request_that_was_taken_over_or_is_obsolete(
    bus: Bus,
) -> None:
    run_id, first = await asked(bus)
    second = await take(bus, run_id, "second", after=first)
    with pytest.raises(LeaseLost):
        await first.mark(1, UNKNOWN)
    step = await take_step(bus, run_id)
    await step.commit(StepCommit(b"{}", finish=Finish("answered")))
    with pytest.raises(RunEnded):
        await second.mark(1, UNKNOWN)
    assert await entered(bus, run_id) == []


async def test_every_call_of_a_delivery_is_accounted_for(bus: Bus) -> None:
    run_id, delivery = await asked(bus)
    await delivery.mark(1, UNKNOWN)
    await delivery.mark(2, UNKNOWN, [(1, b'"in vain"')])
    await delivery.mark(2, UNKNOWN, [(1, b'"in vain"')])  # sent again over a broken connection
    await delivery.mark(3, b'"third"', [(2, b"")])
    assert await entered(bus, run_id) == [b'"in vain"']
    assert await bus.cancel(run_id)
    assert await entered(bus, run_id) == [b'"in vain"', b'"third"']


async def test_a_mark_lives_as_long_as_its_run(bus: Bus) -> None:
    run_id, delivery = await asked(bus)
    await delivery.mark(1, UNKNOWN)
    shard = bus.keys.shard_of(run_id)
    request = shard.request(delivery.envelope.reply_key)
    run, mark = [await bus.redis.pttl(key) for key in (shard.run(run_id), request)]
    assert 0 < run <= mark + 1000


async def take_step(bus: Bus, run_id: str) -> Delivery:
    """Return the run's first step in a worker's hands."""
    shard = bus.keys.shard_of(run_id)
    stream = shard.work("planner")
    await scripts.call(bus.redis, "group", [stream], [GROUP])
    [[_, [(entry, fields)]]] = await bus.redis.xreadgroup(GROUP, "planner", {stream: ">"})
    lease = Lease(stream, entry.decode(), "planner", 1)
    return Delivery(
        bus, shard, "planner", lease, Envelope.from_json(fields[FIELD.encode()]), Note()
    )
