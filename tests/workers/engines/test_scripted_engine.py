"""The scripted engine: the common rules, and its special features."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from loopline.agents.records import Message
from loopline.workers.engines.faults import FaultPlan
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.scripted.engine import ScriptedEngine
from loopline.workers.engines.settings import ModelSettings, ScriptedOptions
from tests.workers.engines.asking import (
    DELEGATE,
    QUESTION,
    ask,
    events,
    failure,
    request,
    user,
)
from tests.workers.engines.conformance import EngineConformance


def scripted(max_context: int | None = None, **options: object) -> ScriptedEngine:
    return ScriptedEngine(
        ModelSettings(
            engine="scripted",
            model="scripted",
            max_context=max_context,
            scripted=ScriptedOptions.model_validate(options),
        )
    )


class TestScriptedEngine(EngineConformance):
    @pytest.fixture
    async def engine(self) -> AsyncIterator[ScriptedEngine]:
        engine = scripted(max_context=4096)
        await engine.start()
        yield engine
        await engine.close()

    @pytest.fixture
    async def slow_engine(self) -> AsyncIterator[ScriptedEngine]:
        engine = scripted(latency_seconds=0.2)
        await engine.start()
        yield engine
        await engine.close()

    async def test_a_planner_delegates_and_answers_with_the_result(self) -> None:
        engine = scripted()
        first = await ask(engine, tools=[DELEGATE])
        (call,) = first.tool_calls
        assert call.name == "delegate"
        assert set(call.arguments or {}) == {"problem", "expected_type"}
        wrong = Message(role="tool", content="1000", tool_call_id=call.id)
        turns = [user(QUESTION), Message(role="assistant", raw_text=first.text), wrong]
        second = await ask(engine, turns, tools=[DELEGATE])
        assert "\\boxed{1005}" in second.text or "\\boxed{1000}" in second.text

    async def test_a_mistake_is_a_false_equation_or_a_missing_box(self) -> None:
        engine = scripted(mistake_rate=1.0)
        for number in range(20):
            completion = await ask(engine, f"What is {number} * 7?\nAnswer type: integer.")
            assert f"\\boxed{{{number * 7}}}" not in completion.text

    @pytest.mark.parametrize(
        ("fault", "kind", "retryable"),
        [
            ("rate_limited", "rate_limited", True),
            ("server_error", "unavailable", True),
            ("malformed_json", "garbage", True),
            ("missing_usage", "garbage", False),
            ("truncated_stream", "unavailable", True),
        ],
    )
    async def test_an_injected_fault_is_a_typed_error(
        self, fault: str, kind: str, retryable: bool
    ) -> None:
        engine = scripted(faults=FaultPlan.model_validate({"sequence": [fault, "ok"]}))
        error = await failure(engine, request())
        assert (error.kind, error.retryable) == (kind, retryable)
        assert "89" in (await ask(engine)).text

    async def test_a_hang_lasts_until_the_deadline(self) -> None:
        engine = scripted(faults=FaultPlan(hang=1.0))
        error = await failure(engine, request(deadline=time.time() + 0.05))
        assert error.kind == "deadline"

    async def test_a_malformed_tool_call_reports_its_error(self) -> None:
        engine = scripted(faults=FaultPlan(malformed_tool_call=1.0))
        completion = await ask(engine, tools=[DELEGATE])
        (call,) = completion.tool_calls
        assert call.arguments is None
        assert "JSON" in str(call.error)

    async def test_fault_rates_hit_the_same_requests_whatever_the_order(self) -> None:
        plan = FaultPlan(rate_limited=0.3, seed=9)
        questions = [f"What is {number} + 1?" for number in range(60)]

        async def failing(order: list[str]) -> set[str]:
            engine, failed = scripted(faults=plan), set[str]()
            for question in order:
                try:
                    await events(engine, request(question))
                except EngineError:
                    failed.add(question)
            return failed

        forwards, backwards = await failing(questions), await failing(questions[::-1])
        assert forwards == backwards
        assert 8 < len(forwards) < 30

    async def test_abandoned_tokens_are_counted_separately(self) -> None:
        engine = scripted()
        stream = engine.submit(request(stream=True))
        await anext(stream)
        await stream.aclose()
        totals = engine.totals()
        assert (totals.calls, totals.completion_tokens) == (0, 0)
        assert totals.abandoned_tokens > 0

    async def test_latency_and_speed_follow_the_settings(self) -> None:
        engine = scripted(latency_seconds=0.05, tokens_per_second=100.0)
        started = time.monotonic()
        completion = await ask(engine, sampling={"max_tokens": 10})
        assert time.monotonic() - started >= 0.15
        assert completion.first_token_seconds >= 0.05
        assert completion.decode_seconds >= 0.1
