"""The outcome of a tool's call whose worker died in the middle of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from loopline.agents.approvals import ApprovalNeeded
from loopline.agents.records import Budget, JsonObject
from loopline.agents.tools import (
    NotCarriedOut,
    OutcomeUnknown,
    Tool,
    ToolContext,
    ToolFailed,
    tool,
    tools,
)
from loopline.bus import Bus, BusSettings, Consumer, Delivery, Inbox, effects, scripts
from loopline.bus.effects import UnfinishedCall
from loopline.bus.envelope import FIELD, Envelope
from loopline.bus.keys import GROUP
from loopline.bus.lease import Lease
from loopline.runtime.client.client import Client
from loopline.workers.host import BusHost
from loopline.workers.messages import TOOL_STREAM, ToolPayload, registry
from loopline.workers.tool import CallNote, tool_handler

PAID: JsonObject = {"result": "paid 5"}


@dataclass
class Bank:
    """Effects of the tools below on the world."""

    keys: list[str] = field(default_factory=list[str])


@pytest.fixture
def bank(monkeypatch: pytest.MonkeyPatch) -> Bank:
    """Register the tools below for one test."""
    bank = Bank()

    def pay(amount: int, context: ToolContext) -> str:
        """Pay an amount."""
        bank.keys.append(context.key)
        return f"paid {amount}"

    def look(amount: int) -> str:
        return f"paid {amount}"

    def surely_not(amount: int) -> str:
        raise NotCarriedOut

    def cannot_tell(amount: int) -> str:
        raise OutcomeUnknown("the bank does not answer")

    @tool(timeout_seconds=0.05)
    async def slow(context: ToolContext) -> str:
        """Pay, and never come back."""
        bank.keys.append(context.key)
        await asyncio.Event().wait()
        return ""

    @tool(quick=True)
    def refuses() -> str:
        """Refuse."""
        raise ToolFailed("no money")

    @tool(quick=True)
    def breaks() -> str:
        """Break."""
        raise ConnectionResetError("gone")

    bank_tools: Sequence[Tool[Any]] = (
        tool(name="pay_none", quick=True, effect="none")(pay),
        tool(name="pay_keyed", quick=True, effect="keyed")(pay),
        tool(name="pay_once", quick=True)(pay),
        tool(name="pay_and_look", quick=True, reconcile=look)(pay),
        tool(name="pay_again", quick=True, reconcile=surely_not)(pay),
        tool(name="pay_cannot_tell", quick=True, reconcile=cannot_tell)(pay),
        tool(name="pay_by_person", quick=True, on_unknown="person")(pay),
        slow,
        refuses,
        breaks,
    )
    items = {**vars(tools)["_items"], **{entry.name: entry for entry in bank_tools}}
    monkeypatch.setattr(tools, "_items", items)
    return bank


@dataclass
class Deployment:
    """A run that calls tools, and workers for them."""

    bus: Bus
    host: BusHost
    run_id: str

    async def dying(self, delivery: Delivery) -> None:
        """A worker records its call and dies."""
        payload = delivery.payload
        assert isinstance(payload, ToolPayload)
        note = CallNote(
            key=delivery.envelope.reply_key, run_id=self.run_id, agent="planner",
            tool=payload.name, arguments=payload.arguments, worker="dead", began=0.0,
        )  # fmt: skip
        if tools.get(payload.name).effect == "once":
            await effects.begin(delivery, note.model_dump_json().encode())

    async def taken_by_the_dead(self) -> Delivery:
        shard = self.bus.keys.shard_of(self.run_id)
        stream = shard.work(TOOL_STREAM)
        await scripts.call(self.bus.redis, "group", [stream], [GROUP])
        streams = await self.bus.blocking.xreadgroup(GROUP, "dead", {stream: ">"}, block=5_000)
        [[_, [(entry, fields)]]] = streams
        envelope = Envelope.from_json(fields[FIELD.encode()])
        lease = Lease(stream, entry.decode(), "dead", 1)
        payload = self.bus.registry.decode(envelope)
        return Delivery(self.bus, shard, TOOL_STREAM, lease, envelope, payload)

    @asynccontextmanager
    async def worker(self) -> AsyncGenerator[None]:
        consumer = Consumer(self.bus, [TOOL_STREAM], tool_handler())
        serving = asyncio.create_task(consumer.run())
        yield
        consumer.drain()
        await serving

    async def call(self, name: str, arguments: JsonObject) -> JsonObject:
        async with self.worker():
            return await self.host.call_tool(name, arguments)

    async def call_of_a_dead_worker(self, name: str) -> JsonObject:
        """Return the role's result after another worker has taken the call over."""
        calling = asyncio.create_task(self.host.call_tool(name, {"amount": 5}))
        await self.dying(await self.taken_by_the_dead())
        async with self.worker():
            return await calling

    def step_again(self) -> BusHost:
        """Return the host of the same step for its next attempt."""
        fields = vars(self.host)
        return BusHost(fields["_inbox"], fields["_run"], "planner", 0, 0)

    async def listed(self) -> list[tuple[UnfinishedCall, CallNote]]:
        return [
            (call, CallNote.model_validate_json(call.note))
            async for call in effects.unfinished(self.bus)
        ]


@pytest.fixture
async def deployment(settings: BusSettings) -> AsyncGenerator[Deployment]:
    async with Bus(settings, registry()) as bus, Client.connect(settings) as client:
        run = client.new_run("Pay.", budget=Budget(seconds=60))
        await client.submit(run)
        async with Inbox(bus) as inbox:
            yield Deployment(bus, BusHost(inbox, run, "planner", 0, 0), run.id)


async def test_an_interrupted_once_only_call_is_not_repeated_and_its_model_reads_unknown(
    deployment: Deployment, bank: Bank
) -> None:
    answer = await deployment.call_of_a_dead_worker("pay_once")
    assert bank.keys == []
    assert answer["outcome"] == "unknown"
    assert "Look before you repeat it" in str(answer["error"])
    [(_, note)] = await deployment.listed()
    assert (note.tool, note.key) == ("pay_once", answer["call"])
    assert note.why


@pytest.mark.parametrize("name", ["pay_none", "pay_keyed"])
async def test_a_repeatable_call_is_repeated_with_its_key(
    deployment: Deployment, bank: Bank, name: str
) -> None:
    calling = asyncio.create_task(deployment.host.call_tool(name, {"amount": 5}))
    first = await deployment.taken_by_the_dead()
    async with deployment.worker():
        assert await calling == PAID
    assert bank.keys == [first.envelope.reply_key]
    assert await deployment.listed() == []


async def test_a_reconcile_function_determines_a_call_s_outcome(
    deployment: Deployment, bank: Bank
) -> None:
    assert await deployment.call_of_a_dead_worker("pay_and_look") == PAID
    assert bank.keys == []
    assert await deployment.listed() == []


async def test_a_call_that_certainly_had_no_effect_is_repeated(
    deployment: Deployment, bank: Bank
) -> None:
    assert await deployment.call_of_a_dead_worker("pay_again") == PAID
    assert len(bank.keys) == 1
    assert await deployment.listed() == []


async def test_a_reconcile_function_that_cannot_tell_leaves_the_outcome_unknown(
    deployment: Deployment, bank: Bank
) -> None:
    answer = await deployment.call_of_a_dead_worker("pay_cannot_tell")
    assert answer["error"] == "the bank does not answer"
    assert answer["outcome"] == "unknown"
    [(_, note)] = await deployment.listed()
    assert note.why == "the bank does not answer"


@pytest.mark.parametrize("made_again", [False, True])
async def test_a_person_resolves_a_call_without_an_outcome_and_its_step_finds_the_result(
    deployment: Deployment, bank: Bank, made_again: bool
) -> None:
    calling = asyncio.create_task(deployment.host.call_tool("pay_by_person", {"amount": 5}))
    await deployment.dying(await deployment.taken_by_the_dead())
    async with deployment.worker():
        with pytest.raises(ApprovalNeeded) as needed:
            await calling
        assert needed.value.request.kind == "outcome"
        [(call, note)] = await deployment.listed()
        assert (note.waits_for_person, call.in_hand) == (True, False)
        reply = None if made_again else b'{"result": "found it in the books"}'
        resolution = await effects.resolve(deployment.bus, call, reply)
        assert resolution is effects.Resolution.WAITING
        answer = await deployment.step_again().call_tool("pay_by_person", {"amount": 5})
    assert answer == (PAID if made_again else {"result": "found it in the books"})
    assert len(bank.keys) == made_again
    assert await deployment.listed() == []


async def test_a_tool_that_answered_in_time_leaves_no_unfinished_call(
    deployment: Deployment, bank: Bank
) -> None:
    assert await deployment.call("pay_once", {"amount": 5}) == PAID
    assert len(bank.keys) == 1
    assert await deployment.listed() == []


async def test_a_tool_that_reports_its_failure_leaves_no_unfinished_call(
    deployment: Deployment, bank: Bank
) -> None:
    assert await deployment.call("refuses", {}) == {"error": "no money"}
    assert await deployment.call("pay_once", {"amount": "much"}) != PAID
    assert await deployment.listed() == []


@pytest.mark.parametrize("name", ["slow", "breaks"])
async def test_a_once_only_call_that_times_out_or_raises_has_an_unknown_outcome(
    deployment: Deployment, bank: Bank, name: str
) -> None:
    answer = await deployment.call(name, {})
    assert answer["outcome"] == "unknown"
    [(_, note)] = await deployment.listed()
    assert note.why == answer["error"]


def test_a_tool_s_context_is_not_a_parameter_that_models_see(bank: Bank) -> None:
    assert list(tools.get("pay_once").spec.parameters["properties"]) == ["amount"]  # type: ignore[arg-type]


def test_a_reconcile_function_with_other_parameters_is_refused() -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return ""

    def look(order: str) -> str:
        return order

    with pytest.raises(TypeError, match="has the parameters order; it needs the tool's own: amo"):
        tool(reconcile=look)(pay)
    with pytest.raises(TypeError, match="reconcile= is for effect='once'"):
        tool(effect="keyed", reconcile=pay)(pay)
