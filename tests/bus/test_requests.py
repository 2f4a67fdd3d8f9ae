"""Requests: asked any number of times, done once, answered to every remaining waiter."""

from __future__ import annotations

import asyncio
import json
import signal
import time

import pytest

from loopline.bus import (
    Bus,
    DeadlineExceeded,
    Delivery,
    Inbox,
    LeaseLost,
    MessageTooLarge,
    RequestError,
    error_reply,
)
from loopline.bus.keys import GROUP
from tests.bus.payloads import admit, note
from tests.bus.serving import serving, until
from tests.bus.worker_process import worker_process

USED, DISCARDED = b'{"tokens": 7}', b'{"tokens": 7, "discarded": true}'


async def answered(inbox: Inbox, run_id: str, key: str) -> bytes:
    return await asyncio.wait_for(inbox.request("infer", note(run_id, key=key)), 20)


async def test_a_retried_step_receives_the_stored_answer(bus: Bus) -> None:
    executions: list[str] = []

    async def handler(delivery: Delivery) -> None:
        executions.append(delivery.envelope.reply_key)
        await delivery.reply(b'"42"', store=True, usage=[(USED, DISCARDED)])

    run_id = await admit(bus)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], handler):
        assert await answered(inbox, run_id, "a") == b'"42"'
        assert await answered(inbox, run_id, "a") == b'"42"'
        assert await answered(inbox, run_id, "b") == b'"42"'
    assert executions == ["a", "b"]
    assert await bus.usage(run_id) == [USED, USED]


async def test_concurrent_callers_share_one_execution(bus: Bus) -> None:
    """Callers in one process and in two all receive the answer."""
    executions: list[str] = []
    everybody = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        executions.append(delivery.envelope.reply_key)
        await everybody.wait()
        await delivery.reply(b'"42"', store=True)

    run_id = await admit(bus)
    async with (
        Bus(bus.settings, bus.registry) as second,
        Inbox(bus) as here,
        Inbox(second) as there,
        serving(bus, ["infer"], handler),
    ):
        asking = [
            asyncio.create_task(answered(inbox, run_id, "k"))
            for inbox in (here, here, there, there)
        ]
        request = bus.keys.shard_of(run_id).request("k")

        async def both_wait() -> bool:
            fields = await bus.redis.hkeys(request)  # pyright: ignore
            return sum(name.startswith(b"w:") for name in fields) == 2

        await until(both_wait, "both processes wait")
        everybody.set()
        began = time.monotonic()
        assert await asyncio.gather(*asking) == [b'"42"'] * 4
        assert time.monotonic() - began < 4, "told by notice, not by looking again"
    assert executions == ["k"]


async def test_a_waiter_that_gives_up_does_not_cost_another_its_answer(bus: Bus) -> None:
    """A step whose lease was lost is cancelled while its successor waits for the same key."""
    go_on = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        await go_on.wait()
        await delivery.reply(b'"42"', store=False)

    run_id = await admit(bus)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], handler):
        first = asyncio.create_task(answered(inbox, run_id, "k"))
        second = asyncio.create_task(answered(inbox, run_id, "k"))
        await until(lambda: _held(bus), "the request is at work")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go_on.set()
        began = time.monotonic()
        assert await second == b'"42"'
        assert time.monotonic() - began < 4


async def _held(bus: Bus) -> bool:
    stream = bus.keys.shard(0).work("infer")
    if not await bus.redis.exists(stream):
        return False
    groups = await bus.redis.xinfo_groups(stream)
    return sum(int(group["pending"]) for group in groups) == 1


async def test_a_transient_error_frees_its_key(bus: Bus) -> None:
    executions: list[int] = []

    async def handler(delivery: Delivery) -> None:
        executions.append(1)
        if len(executions) == 1:
            await delivery.reply(error_reply("busy", "not now", retryable=True), store=False)
        else:
            await delivery.reply(b'"42"', store=True)

    run_id = await admit(bus)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], handler):
        with pytest.raises(RequestError, match="not now") as caught:
            await answered(inbox, run_id, "k")
        assert (caught.value.kind, caught.value.retryable) == ("busy", True)
        assert await answered(inbox, run_id, "k") == b'"42"'
    assert len(executions) == 2


async def test_a_permanent_error_is_stored_like_an_answer(bus: Bus) -> None:
    executions: list[int] = []

    async def handler(delivery: Delivery) -> None:
        executions.append(1)
        await delivery.reply(error_reply("refused", "never", retryable=False), store=True)

    run_id = await admit(bus)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], handler):
        for _ in range(2):
            with pytest.raises(RequestError, match="never"):
                await answered(inbox, run_id, "k")
    assert len(executions) == 1


async def test_a_restarted_waiter_finds_the_answer_when_it_asks_again(bus: Bus) -> None:
    """The reply went to an inbox without a reader, but the answer is stored."""
    run_id = await admit(bus)
    async with Inbox(bus) as inbox:
        asking = asyncio.create_task(answered(inbox, run_id, "k"))
        await until(lambda: _asked(bus), "the question is out")
        asking.cancel()
    with worker_process(bus.settings, "infer", "answer") as worker:
        await worker.heard("replied")
    async with Bus(bus.settings) as successor, Inbox(successor) as inbox:
        assert await answered(inbox, run_id, "k") == b'"from a process"'
    # The dead process's inbox is left to expire.
    inbox_key = bus.keys.shard_of(run_id).inbox(bus.process)
    assert 0 < await bus.redis.pttl(inbox_key) <= 600_000


async def _asked(bus: Bus) -> bool:
    return (await bus.queue_lengths(["infer"]))["infer"] == 1


async def test_another_process_answers_a_request_after_the_first_was_killed(
    bus: Bus,
) -> None:
    run_id = await admit(bus)
    async with Inbox(bus) as inbox:
        with worker_process(bus.settings, "infer", "hold") as doomed:
            asking = asyncio.create_task(answered(inbox, run_id, "k"))
            await doomed.heard("took")
            doomed.send(signal.SIGKILL)
        with worker_process(bus.settings, "infer", "answer"):
            assert await asking == b'"from a process"'


async def test_a_late_reply_is_refused_but_its_usage_is_recorded_as_discarded(bus: Bus) -> None:
    """It was paid for. The sum of the entries equals the provider's count, whichever worker won."""
    late: list[str] = []

    async def handler(delivery: Delivery) -> None:
        lease = delivery.lease
        if lease.count == 1:
            # Another worker claims it and answers first.
            await bus.redis.xclaim(lease.stream, GROUP, lease.consumer, 0, [lease.entry])
            try:
                for _ in range(2):  # the second is sent as after a lost connection
                    try:
                        await delivery.reply(b'"late"', store=True, usage=[(USED, DISCARDED)])
                    except LeaseLost:
                        late.append("lost")
            finally:
                bus.keeper.release(lease)
            raise LeaseLost("taken over")
        await delivery.reply(b'"first"', store=True, usage=[(USED, DISCARDED)])

    run_id = await admit(bus)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], handler):
        assert await answered(inbox, run_id, "k") == b'"first"'
    assert late == ["lost", "lost"]
    assert await bus.usage(run_id) == [DISCARDED, USED]
    ledger = await bus.redis.xrange(bus.keys.shard_of(run_id).ledger)
    assert [fields[b"usage"] for _, fields in ledger] == [DISCARDED, USED]


async def test_a_late_reply_to_a_forgotten_request_leaves_no_key_without_expiry(bus: Bus) -> None:
    """A dead letter took its hash; the check after each test looks for keys without expiry."""
    done = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        lease = delivery.lease
        shard = delivery.shard
        await bus.redis.xack(lease.stream, GROUP, lease.entry)
        await bus.redis.delete(shard.request("k"), shard.run(delivery.envelope.run_id))
        try:
            await delivery.reply(b'"late"', store=True, usage=[(USED, DISCARDED)])
        except LeaseLost:
            done.set()

    run_id = await admit(bus)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], handler):
        asking = asyncio.create_task(answered(inbox, run_id, "k"))
        await asyncio.wait_for(done.wait(), 20)
        asking.cancel()
    assert await bus.usage(run_id) == [DISCARDED]


async def test_a_waiter_stops_at_its_deadline(bus: Bus) -> None:
    run_id = await admit(bus)
    async with Inbox(bus) as inbox:
        hurried = note(run_id, key="k").model_copy(update={"deadline": time.time() + 0.2})
        with pytest.raises(DeadlineExceeded, match="request k"):
            await inbox.request("infer", hurried)


async def test_a_request_that_its_worker_dropped_can_be_asked_again(bus: Bus) -> None:
    """A request dropped past its deadline must not block its key until it expires."""
    executions: list[int] = []

    async def handler(delivery: Delivery) -> None:
        executions.append(1)
        if len(executions) == 1:
            raise DeadlineExceeded("too late to begin")
        await delivery.reply(b'"42"', store=True)

    run_id = await admit(bus)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], handler):
        hurried = note(run_id, key="k").model_copy(update={"deadline": time.time() + 0.5})
        with pytest.raises(DeadlineExceeded):
            await inbox.request("infer", hurried)
        assert await answered(inbox, run_id, "k") == b'"42"'


async def test_a_request_over_the_limit_is_refused_and_an_answer_over_it_replaced(bus: Bus) -> None:
    async def handler(delivery: Delivery) -> None:
        huge = json.dumps("x" * (bus.settings.max_message_bytes + 1)).encode()
        await delivery.reply(huge, store=True, usage=[(USED, DISCARDED)])

    run_id = await admit(bus)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], handler):
        with pytest.raises(MessageTooLarge):
            await inbox.request("infer", note(run_id, "x" * 10_000_000, key="k"))
        with pytest.raises(RequestError, match="max_message_bytes") as caught:
            await answered(inbox, run_id, "k")
    assert caught.value.kind == "too_large"
    assert await bus.usage(run_id) == [USED], "it was paid for"


async def test_read_mail_is_deleted_in_batches_or_when_the_inbox_is_idle(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.bus.requests.DELETED_AT_ONCE", 4)

    async def handler(delivery: Delivery) -> None:
        await delivery.reply(b'"42"', store=True)

    run_id = await admit(bus)
    inbox_key = bus.keys.shard_of(run_id).inbox(bus.process)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], handler):
        for count in range(1, 12):
            assert await answered(inbox, run_id, f"{count}") == b'"42"'
            assert await bus.redis.xlen(inbox_key) <= 4
        async with asyncio.timeout(20):
            while await bus.redis.xlen(inbox_key):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
