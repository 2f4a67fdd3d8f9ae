"""Lifetime of the replies to a step's requests: the bus keeps them while a step may ask again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from loopline.bus import Bus, Delivery, Finish, Inbox, Outgoing, RunEnded, StepCommit, scripts
from loopline.bus.envelope import FIELD, Envelope
from loopline.bus.keys import GROUP
from loopline.bus.lease import Lease
from loopline.testing import RedisProcess
from tests.bus.bus_model import Run
from tests.bus.payloads import Note, admit, note
from tests.bus.serving import ended, serving
from tests.bus.test_state_machine import WHICH, BusMachine

A_MINUTE_MS = 60_000


async def answer(delivery: Delivery) -> None:
    await delivery.reply(b'"42"', store=True)


async def lives(bus: Bus) -> list[int]:
    """Lives of all requests, in milliseconds."""
    return [
        int(await bus.redis.pttl(key))
        for shard in bus.keys.all_shards()
        async for key in bus.redis.scan_iter(shard.request("*"))
    ]


async def test_replies_expire_within_a_minute_of_their_run_s_end(bus: Bus) -> None:
    async with Inbox(bus) as inbox, serving(bus, ["infer"], answer):

        async def step(delivery: Delivery) -> None:
            envelope = delivery.envelope
            for count in range(3):
                key = f"{envelope.run_id}/{envelope.guard}/{count}"
                await inbox.request("infer", note(envelope.run_id, turn=envelope.turn, key=key))
            if envelope.turn:
                await delivery.commit(StepCommit(b"{}", finish=Finish("answered", "42")))
                return
            onward = Outgoing("planner", note(envelope.run_id, turn=1))
            await delivery.commit(StepCommit(b"{}", publish=(onward,)))

        async with serving(bus, ["planner"], step):
            run_id = await admit(bus)
            await ended(bus, run_id)
    lifetimes = await lives(bus)
    assert len(lifetimes) == 6
    assert max(lifetimes) <= A_MINUTE_MS


async def test_a_resumed_worker_pays_nothing_for_a_committed_step(bus: Bus) -> None:
    """Its replies may have expired: the worker learns that the answer is obsolete."""

    async def step(delivery: Delivery) -> None:
        await delivery.commit(StepCommit(b"{}"))
        done.set()

    done = asyncio.Event()
    async with Inbox(bus) as inbox:
        async with serving(bus, ["planner"], step):
            run_id = await admit(bus)
            await asyncio.wait_for(done.wait(), 20)
        with pytest.raises(RunEnded, match="committed"):
            await inbox.request("infer", note(run_id, key="k"))
        assert await bus.queue_lengths(["infer"]) == {"infer": 0}


async def test_a_reply_that_arrives_after_its_run_s_end_expires_as_soon(bus: Bus) -> None:
    async def late(delivery: Delivery) -> None:
        await bus.cancel(delivery.envelope.run_id)
        await delivery.reply(b'"42"', store=True)

    run_id = await admit(bus)
    async with Inbox(bus) as inbox, serving(bus, ["infer"], late):
        assert await inbox.request("infer", note(run_id, key="k")) == b'"42"'
    [life] = await lives(bus)
    assert life <= A_MINUTE_MS


@dataclass
class Request:
    """The model's request."""

    run: Run
    guard: str
    was_asked: bool = False
    reply: bytes | None = None

    @property
    def over(self) -> bool:
        run = self.run
        return self.guard in run.guards or (run.state == "ended" and run.outcome != "error")


class ReplyMachine(BusMachine):
    """Moves of the bus, with steps that ask in between."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[str, Request] = {}

    @precondition(lambda self: bool(self.tokens))
    @rule(which=WHICH, count=st.integers(0, 1))
    def a_step_asks(self, which: tuple[int, int], count: int) -> None:
        message = self.pick(which).message
        run = message.run
        key = f"{run.id}/{message.guard}/{count}"
        envelope = note(run.id, turn=message.turn, branch=message.branch, key=key)
        keys = [self.shard.request(key), self.shard.work("infer"), self.shard.inbox("me"),
                self.shard.run(run.id)]  # fmt: skip
        got = self.do(
            scripts.call(
                self.bus.redis, "request", keys, [envelope.to_json(), 86_400_000, key,
                                                  envelope.guard, ""],
            )
        )  # fmt: skip
        request = self.requests.setdefault(key, Request(run, message.guard))
        if request.reply is not None:
            assert got == [b"done", request.reply]
        elif run.state == "ended" or request.over:
            assert got == [b"over"]
        else:
            assert got[0] == b"waiting"
            request.was_asked = True

    @precondition(lambda self: any(request.was_asked for request in self.requests.values()))
    @rule(store=st.sampled_from([True, True, False]))
    def a_request_is_answered(self, store: bool) -> None:
        stream = self.shard.work("infer")
        self.do(scripts.call(self.bus.redis, "group", [stream], [GROUP]))
        [[_, [(entry, fields)]]] = self.do(
            self.bus.redis.xreadgroup(GROUP, "gpu", {stream: ">"}, count=1)
        )
        envelope = Envelope.from_json(fields[FIELD.encode()])
        lease = Lease(stream, entry.decode(), "gpu", 1)
        reply = f'"{envelope.reply_key}"'.encode()
        delivery = Delivery(self.bus, self.shard, "infer", lease, envelope, Note())
        self.do(delivery.reply(reply, store=store))
        request = self.requests[envelope.reply_key]
        request.was_asked, request.reply = False, reply if store else None

    @invariant()
    def a_reply_is_there_while_its_step_may_ask_and_a_minute_longer(self) -> None:
        for key, request in self.requests.items():
            at = self.shard.request(key)
            life = self.do(self.bus.redis.pttl(at))
            if request.over:
                assert life <= A_MINUTE_MS
            elif request.reply is not None:
                assert life > A_MINUTE_MS
                stored = self.do(self.bus.redis.hget(at, "reply"))  # pyright: ignore
                assert stored == request.reply


@pytest.mark.timeout(300)
def test_a_reply_lives_as_long_as_it_can_be_asked_for(shared_server: RedisProcess) -> None:
    class Machine(ReplyMachine):
        url = shared_server.url

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=50, stateful_step_count=50, deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )  # fmt: skip
