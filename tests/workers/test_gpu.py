"""The gpu worker's handler with a real engine: the run's deadline applies to the engine."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from loopline.agents.records import Usage
from loopline.agents.usage import UsageEntry
from loopline.bus import Bus, Delivery, Inbox, RequestError, RunEnded
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.scripted.engine import ScriptedEngine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.gpu import Pool
from loopline.workers.messages import CompletionPayload, calls
from tests.bus.leasing import ask, take
from tests.bus.payloads import admit, note
from tests.workers.engines.asking import QUESTION, user
from tests.workers.engines.endpoints import replying


def pool(**scripted: float) -> Pool:
    settings = ModelSettings.model_validate(
        {"engine": "scripted", "model": "scripted-slm", "scripted": scripted}
    )
    return Pool("slm", settings, ScriptedEngine(settings))


async def request_of(bus: Bus, run_id: str, deadline: float) -> Delivery:
    """Lease a request for a completion whose message carries this deadline."""
    await ask(bus, run_id)
    leased = await take(bus, run_id, "gpu")
    payload = CompletionPayload(agent="slm", pool="slm", messages=(user(QUESTION),), seed=1)
    envelope = leased.envelope.model_copy(update={"deadline": deadline})
    return replace(leased, payload=payload, envelope=envelope)


async def answer(bus: Bus, run_id: str) -> bytes:
    """Return the answer as the requester receives it. Raises `RequestError`."""
    async with Inbox(bus) as inbox:
        return await inbox.request("infer", note(run_id, key="call"))


async def test_an_engine_stops_at_the_run_s_deadline_despite_a_later_one_in_the_message(
    bus: Bus,
) -> None:
    slow = pool(latency_seconds=600)
    run_id = await admit(bus, "other", seconds=1.0)
    delivery = await request_of(bus, run_id, time.time() + 600)
    async with asyncio.timeout(60):
        await slow.handle(delivery)
    # On a busy machine the deadline may pass before the engine starts.
    with pytest.raises(RequestError, match=r"its deadline (had )?passed") as caught:
        await answer(bus, run_id)
    assert caught.value.kind == "deadline"


async def test_an_engine_works_past_the_message_s_deadline_until_the_run_s(bus: Bus) -> None:
    """A replay moved the run's deadline; its older messages still carry the earlier one."""
    run_id = await admit(bus, "other", seconds=600)
    await pool().handle(await request_of(bus, run_id, time.time() - 60))
    (call,) = calls.validate_json(await answer(bus, run_id))
    assert "89" in call.text


async def test_an_engine_is_not_asked_for_an_ended_run(bus: Bus) -> None:
    run_id = await admit(bus, "other", seconds=600)
    delivery = await request_of(bus, run_id, time.time() + 600)
    assert await bus.end_run(run_id, "cancelled", "by the test")
    slm = pool()
    with pytest.raises(RunEnded, match=run_id):
        await slm.handle(delivery)
    assert slm.engine.totals().calls == 0


async def test_the_ledger_contains_the_cost_of_a_discarded_answer(bus: Bus) -> None:
    body = (
        b'{"choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "eh"}],'
        b'"usage": {"prompt_tokens": 7, "completion_tokens": 2}}'
    )
    run_id = await admit(bus, "other", seconds=600)
    async with replying(body) as url:
        settings = ModelSettings.model_validate(
            {
                "engine": "openai", "model": "m", "base_url": url,
                "price": {"prompt": 1, "completion": 10},
            }
        )  # fmt: skip
        engine = OpenAIEngine(settings)
        await engine.start()
        await Pool("slm", settings, engine).handle(await request_of(bus, run_id, time.time() + 60))
        await engine.close()
    with pytest.raises(RequestError, match="eh") as caught:
        await answer(bus, run_id)
    assert caught.value.kind == "garbage"
    (line,) = await bus.usage(run_id)
    entry = UsageEntry.model_validate_json(line)
    assert entry.usage == Usage(prompt=7, completion=2, source="provider")
    assert (entry.cost_micro_dollars, entry.discarded) == (27, True)
    assert (entry.agent, entry.policy.name) == ("slm", "slm")


async def test_a_request_that_the_budget_refuses_fails_without_generating(bus: Bus) -> None:
    run_id = await admit(bus, "other", seconds=600, tokens=100)
    slm = pool()
    await slm.handle(await request_of(bus, run_id, time.time() + 600))
    with pytest.raises(RequestError, match="the run has a limit of 100 tokens") as caught:
        await answer(bus, run_id)
    assert (caught.value.kind, caught.value.retryable) == ("budget", False)
    assert slm.engine.totals().calls == 0


async def test_a_request_over_the_run_s_budget_is_not_sent_to_the_endpoint(bus: Bus) -> None:
    async with replying(b"{}") as url:
        settings = ModelSettings.model_validate(
            {"engine": "openai", "model": "m", "base_url": url, "price": {"completion": 10}}
        )
        engine = OpenAIEngine(settings)
        await engine.start()
        run_id = await admit(bus, "other", seconds=600, micro_dollars=100)
        await Pool("llm", settings, engine).handle(await request_of(bus, run_id, time.time() + 600))
        await engine.close()
    with pytest.raises(RequestError, match=r"may take \$0.00512; the run has a limit of \$0.0001"):
        await answer(bus, run_id)
    assert await bus.usage(run_id) == []
