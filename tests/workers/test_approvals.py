"""A call or an answer that needs approval waits for a person and is made once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from loopline.agents.records import Budget, Outcome, Run, Trajectory
from loopline.agents.replay import replay
from loopline.agents.team_parts import AgentBehaviour
from loopline.agents.tools import Tool, tool, tools
from loopline.bus import Bus, BusSettings, Consumer, Inbox, waits
from loopline.runtime.client.client import Client
from loopline.runtime.client.run_records import run_of, trajectory_of
from loopline.runtime.client.waiting import ApprovalConflict, ApprovalUnknown, PendingApproval
from loopline.workers.engines import build_engine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.gpu import Pool
from loopline.workers.messages import TOOL_STREAM, inference_stream, registry, role_stream
from loopline.workers.role import RoleHandler
from loopline.workers.tool import tool_handler
from tests.bus.serving import until

CALL = '<tool_call>\n{{"name": "pay", "arguments": {{"amount": {}}}}}\n</tool_call>'
ANSWERS = [
    {"where": ["a person has refused pay", "too much"], "says": ["I did not pay."]},
    {"where": ["nobody approved pay in time"], "says": ["Nobody was there."]},
    {"where": ["paid 500"], "says": ["It is paid."]},
    {"where": ["paid 5"], "says": ["Five are paid."]},
    {"where": ["Pay 500"], "says": [CALL.format(500)]},
    {"where": ["Pay 5"], "says": [CALL.format(5)]},
    {"where": ["refused agent", "ruder"], "says": ["Dear Sir"]},
    {"where": ["Write a letter"], "says": ["Hey you"]},
]


@dataclass
class Office:
    """A deployment in this process, and its effects on the world."""

    client: Client
    paid: list[int] = field(default_factory=list[int])
    completions: int = 0

    async def begin(self, question: str, **options: Any) -> Run:
        run = self.client.new_run(
            question,
            workflow="agent",
            policies={"agent": "llm"},
            options={"tools": ["pay"], **options},
            budget=Budget(seconds=60),
        )
        await self.client.submit(run)
        return run

    async def pending(self) -> PendingApproval:
        async def waits_for_somebody() -> bool:
            return len(await self.client.approvals()) == 1

        await until(waits_for_somebody, "something waits for approval")
        [approval] = await self.client.approvals()
        return approval

    async def end(self, run: Run) -> Trajectory:
        return await asyncio.wait_for(self.client.wait(run.id), 20)


def too_much(amount: int) -> bool:
    if amount < 0:
        raise ZeroDivisionError("a rule that fails")
    return amount >= 100


@asynccontextmanager
async def serving(bus: Bus, office: Office) -> AsyncGenerator[None]:
    """Workers for everything that an agent needs."""
    settings = ModelSettings.model_validate(
        {"engine": "scripted", "model": "scripted", "scripted": {"answers": ANSWERS}}
    )
    async with AsyncExitStack() as stack:
        inbox = await stack.enter_async_context(Inbox(bus))
        engine = build_engine(settings)
        await engine.start()
        stack.push_async_callback(engine.close)
        pool = Pool("llm", settings, engine, "gpu")

        async def counting(delivery: Any) -> None:
            office.completions += 1
            await pool.handle(delivery)

        handlers = {
            role_stream("agent"): RoleHandler(inbox, "role").handle,
            inference_stream("llm"): counting,
            TOOL_STREAM: tool_handler(),
        }
        consumers = [Consumer(bus, [stream], handler) for stream, handler in handlers.items()]
        running = [asyncio.create_task(consumer.run()) for consumer in consumers]
        yield
        for consumer in consumers:
            consumer.drain()
        await asyncio.gather(*running)


@pytest.fixture
async def office(settings: BusSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Office]:
    async with Bus(settings, registry()) as bus, Client.connect(settings) as client:
        office = Office(client)

        def pay(amount: int) -> str:
            """Pay an amount."""
            office.paid.append(amount)
            return f"paid {amount}"

        declared = tool(quick=True, requires_approval=too_much, approval_seconds=60)(pay)
        items = {**vars(tools)["_items"], "pay": declared}
        monkeypatch.setattr(tools, "_items", items)
        async with serving(bus, office):
            yield office


async def test_an_approved_call_is_made_once_and_the_journal_records_the_approver(
    office: Office,
) -> None:
    run = await office.begin("Pay 500 euros.")
    approval = await office.pending()
    assert (approval.request.name, approval.request.arguments) == ("pay", {"amount": 500})
    assert office.paid == []
    assert await office.client.bus.queue_lengths([role_stream("agent"), TOOL_STREAM]) == {
        role_stream("agent"): 0,
        TOOL_STREAM: 0,
    }
    await office.client.decide(approval, "approved", by="kate")
    trajectory = await office.end(run)
    assert (trajectory.answer, office.paid) == ("It is paid.", [500])
    assert office.completions == 2, "the model is not asked again for what it said before the wait"
    [decided] = trajectory.steps[0].approvals
    assert (decided.decision, decided.by, decided.name) == ("approved", "kate", "pay")
    assert decided.digest == approval.request.digest
    assert (await replay(trajectory)).reproduced
    with pytest.raises(ApprovalUnknown):
        await office.client.approval(approval.id)


async def test_a_denied_call_is_not_made_and_its_model_continues(office: Office) -> None:
    run = await office.begin("Pay 500 euros.")
    await office.client.decide(await office.pending(), "denied", by="kate", reason="too much")
    trajectory = await office.end(run)
    assert (trajectory.answer, office.paid) == ("I did not pay.", [])
    assert trajectory.steps[0].approvals[0].reason == "too much"


async def test_a_call_that_the_rule_allows_needs_no_approval(office: Office) -> None:
    run = await office.begin("Pay 5 euros.")
    assert (await office.end(run)).answer == "Five are paid."
    assert office.paid == [5]


async def test_a_call_without_a_timely_approval_is_refused(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = tool(name="pay", quick=True, requires_approval=True, approval_seconds=0.1)(
        _never_called
    )
    monkeypatch.setitem(vars(tools)["_items"], "pay", declared)
    run = await office.begin("Pay 500 euros.")
    trajectory = await office.end(run)
    assert trajectory.answer == "Nobody was there."
    assert trajectory.steps[0].approvals[0].decision == "expired"


def _never_called(amount: int) -> str:
    """Pay an amount."""
    raise AssertionError("it was called")


async def test_an_approval_for_unseen_arguments_is_refused(office: Office) -> None:
    await office.begin("Pay 500 euros.")
    pending = await office.pending()
    forged = pending.request.model_copy(update={"digest": "0" * 64})
    with pytest.raises(ApprovalConflict, match="other arguments"):
        await office.client.decide(
            PendingApproval(pending.waiting, forged), "approved", by="mallory"
        )
    assert office.paid == []


async def test_the_first_of_two_decisions_counts(office: Office) -> None:
    run = await office.begin("Pay 500 euros.")
    approval = await office.pending()
    await office.client.decide(approval, "denied", by="kate", reason="too much")
    with pytest.raises(ApprovalConflict, match="already been decided"):
        await office.client.decide(approval, "approved", by="leo")
    assert (await office.end(run)).answer == "I did not pay."
    assert office.paid == []


async def test_an_approval_of_other_arguments_does_not_count(office: Office) -> None:
    """An attacker forges an approval of 5 where 500 are to be paid."""
    run = await office.begin("Pay 500 euros.")
    approval = await office.pending()
    bus, request = office.client.bus, approval.request
    other = json.dumps({"decision": "approved", "digest": "0" * 64, "at": 1.0}).encode()
    key = bus.keys.shard_of(run.id).run(run.id)
    await bus.redis.hset(key, f"approval:{request.request}", other)  # pyright: ignore
    with pytest.raises(ApprovalConflict):
        await office.client.decide(approval, "approved", by="kate")
    state = await bus.run_state(run.id)
    # The step runs again, finds no approval of its call, and waits again.
    await _wake(bus, run.id)

    async def waits_anew() -> bool:
        open_waits = (await bus.run_state(run.id)).waits
        return bool(open_waits) and open_waits[0].since > state.waits[0].since

    await until(waits_anew, "it waits again")
    assert office.paid == []
    await office.client.decide(await office.pending(), "approved", by="kate")
    assert (await office.end(run)).answer == "It is paid."


async def _wake(bus: Bus, run_id: str) -> None:
    """Let the wait's time run out without an automatic decision."""
    shard = bus.keys.shard_of(run_id)
    line: bytes = await bus.redis.hget(shard.run(run_id), "wait:0.0")  # pyright: ignore
    timer = line.replace(b"approval\n", b"timer\n", 1)
    await bus.redis.hset(shard.run(run_id), "wait:0.0", timer)  # pyright: ignore
    await bus.redis.zadd(shard.waits, {f"{run_id}/0.0": 1})
    await waits.expire(bus, shard)


async def test_a_run_that_waits_for_approval_can_be_cancelled(office: Office) -> None:
    run = await office.begin("Pay 500 euros.")
    await office.pending()
    assert await office.client.cancel(run.id)
    assert (await office.end(run)).outcome is Outcome.CANCELLED
    assert await office.client.approvals() == []
    assert office.paid == []


async def test_an_agent_s_answer_waits_for_approval_and_is_rewritten_when_refused(
    office: Office,
) -> None:
    run = await office.begin("Write a letter.", requires_approval=True)
    first = await office.pending()
    assert first.request.arguments == {"answer": "Hey you"}
    assert run_of(await office.client.bus.run_state(run.id)).id == run.id
    await office.client.decide(first, "denied", by="kate", reason="ruder than need be")

    async def second_one() -> bool:
        pending = await office.client.approvals()
        return bool(pending) and pending[0].request.digest != first.request.digest

    await until(second_one, "the second answer")
    await office.client.decide(await office.pending(), "approved", by="kate")
    trajectory = await office.end(run)
    assert trajectory.answer == "Dear Sir"
    assert [item.decision for item in trajectory.steps[0].approvals] == ["denied", "approved"]
    state = await office.client.bus.run_state(run.id)
    assert (await replay(trajectory_of(state))).reproduced


@pytest.mark.parametrize(("rule", "approvals"), [({"const": "Hey you"}, 1), ({"const": "Ho"}, 0)])
async def test_only_an_agent_s_answer_that_matches_the_rule_waits(
    office: Office, rule: dict[str, str], approvals: int
) -> None:
    run = await office.begin("Write a letter.", requires_approval=rule)
    if approvals:
        await office.client.decide(await office.pending(), "approved", by="kate")
    trajectory = await office.end(run)
    assert trajectory.answer == "Hey you"
    assert len(trajectory.steps[0].approvals) == approvals


def test_an_answer_rule_that_cannot_be_checked_is_refused() -> None:
    with pytest.raises(ValidationError, match="pattern"):
        AgentBehaviour(requires_approval={"properties": {"text": {"pattern": "^Hey"}}})
    with pytest.raises(ValidationError, match="not a JSON schema"):
        AgentBehaviour(requires_approval={"type": "sentence"})


@pytest.mark.parametrize("amount", [-1, 100])
async def test_a_rule_that_raises_allows_no_call(office: Office, amount: int) -> None:
    declared: Tool[Any] = tools.get("pay")
    context: Any = None
    assert await declared.needs_approval({"amount": amount}, context)
    assert not await declared.needs_approval({"amount": 99}, context)
    assert not await declared.needs_approval({"amount": "a lot"}, context)


def test_a_rule_must_have_the_tool_s_parameters() -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return ""

    def rule(sum: int) -> bool:
        return True

    with pytest.raises(TypeError, match="its approval rule has the parameters sum"):
        tool(requires_approval=rule)(pay)
