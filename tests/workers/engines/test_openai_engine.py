"""The openai engine against the scripted server: the common rules, and an endpoint's faults."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager

import pytest

from loopline.agents.records import Message, ToolCall, Usage
from loopline.workers.engines.faults import FaultPlan
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.protocol import (
    Completion,
    Discarded,
    EngineError,
    EngineEvent,
    EngineTotals,
    Sending,
)
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.scripted_api import ScriptedServer, ServerOptions
from tests.workers.engines.asking import (
    DELEGATE,
    QUESTION,
    ask,
    completions,
    deltas,
    events,
    failure,
    request,
    user,
)
from tests.workers.engines.conformance import EngineConformance
from tests.workers.engines.endpoints import replying

KEY = "sk-very-secret-0123456789"


@asynccontextmanager
async def endpoint(
    *faults: str, settings: dict[str, object] | None = None, **options: object
) -> AsyncGenerator[tuple[OpenAIEngine, ScriptedServer]]:
    """A started engine on a scripted server whose first requests meet `faults`."""
    if faults:
        options["faults"] = FaultPlan.model_validate({"sequence": faults})
    async with ScriptedServer(ServerOptions.model_validate(options)) as server:
        engine = OpenAIEngine(
            ModelSettings.model_validate(
                {
                    "engine": "openai",
                    "model": "gpt-test",
                    "base_url": server.url,
                    "backoff_seconds": 0.01,
                    **(settings or {}),
                }
            )
        )
        await engine.start()
        try:
            yield engine, server
        finally:
            await engine.close()


class TestOpenAIEngine(EngineConformance):
    @pytest.fixture
    async def engine(self) -> AsyncIterator[OpenAIEngine]:
        async with endpoint(max_context=4096, settings={"max_context": 4096}) as (engine, _):
            yield engine

    @pytest.fixture
    async def slow_engine(self) -> AsyncIterator[OpenAIEngine]:
        async with endpoint(latency_seconds=0.2) as (engine, _):
            yield engine

    async def test_score_is_refused_with_the_engines_that_support_it(
        self, engine: OpenAIEngine
    ) -> None:
        with pytest.raises(EngineError, match="torch") as caught:
            await engine.score([1, 2])
        assert caught.value.kind == "bad_request"


class TestOpenAIEngineWithIdsAndLogprobs(TestOpenAIEngine):
    """The endpoint serves like vLLM: token ids and the logprobs of the sampled distribution."""

    @pytest.fixture
    async def engine(self) -> AsyncIterator[OpenAIEngine]:
        fields: dict[str, object] = {
            "token_ids": True,
            "logprobs": "processed",
            "max_context": 4096,
        }
        async with endpoint(max_context=4096, settings=fields) as (engine, _):
            yield engine

    async def test_each_of_several_completions_has_its_own_token_count(
        self, engine: OpenAIEngine
    ) -> None:
        generate_request = request(sampling={"n": 4, "temperature": 1.0, "seed": 3})
        for completion in await completions(engine, generate_request):
            assert completion.usage.completion == len(completion.output_ids)


async def test_token_counts_come_from_the_provider_and_nothing_is_requested_twice() -> None:
    async with endpoint() as (engine, server):
        results = [await ask(engine, f"What is {n} + 1?", stream=n % 2 == 0) for n in range(10)]
        books = server.served.as_json(listed=True)
        totals = engine.totals()
        assert books["calls"] == totals.calls == 10
        assert books["prompt_tokens"] == totals.prompt_tokens
        assert books["completion_tokens"] == sum(
            completion.usage.completion for completion in results
        )
        assert books["repeated_ids"] == books["repeated_requests"] == 0


async def test_cached_tokens_of_a_second_turn_are_reported() -> None:
    async with endpoint() as (engine, _):
        first = await ask(engine, tools=[DELEGATE])
        (call,) = first.tool_calls
        turns = [
            user(QUESTION),
            Message(role="assistant", content=first.text, tool_calls=first.tool_calls),
            Message(role="tool", content="84", tool_call_id=call.id),
        ]
        second = await ask(engine, turns, tools=[DELEGATE])
        assert 0 < second.usage.cached < second.usage.prompt


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", ["rate_limited", "server_error", "malformed_json"])
async def test_a_transient_fault_is_retried(fault: str, stream: bool) -> None:
    if fault == "malformed_json" and stream:
        pytest.skip("a stream that breaks after its first words is not repeated by the engine")
    async with endpoint(fault, fault) as (engine, server):
        assert "89" in (await ask(engine, stream=stream)).text
        assert server.served.arrivals == 3
        assert engine.totals().calls == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("rate_limited", "rate_limited"), ("server_error", "unavailable")],
)
async def test_the_number_of_attempts_is_bounded(fault: str, kind: str) -> None:
    async with endpoint(*[fault] * 9, settings={"max_attempts": 3}) as (engine, server):
        error = await failure(engine, request())
        assert (error.kind, error.retryable) == (kind, True)
        assert server.served.arrivals == 3


async def test_retry_after_is_honoured() -> None:
    plan = FaultPlan(sequence=("rate_limited",), retry_after_seconds=0.3)
    async with endpoint(faults=plan) as (engine, _):
        started = time.monotonic()
        await ask(engine)
        assert time.monotonic() - started >= 0.3


async def test_no_attempt_starts_after_the_deadline() -> None:
    plan = FaultPlan(sequence=("rate_limited",), retry_after_seconds=60)
    async with endpoint(faults=plan) as (engine, server):
        started = time.monotonic()
        error = await failure(engine, request(deadline=time.time() + 30))
        assert error.kind == "rate_limited"
        assert "deadline" in str(error)
        assert time.monotonic() - started < 25
        assert server.served.arrivals == 1


async def test_an_endpoint_that_never_answers_is_a_timeout() -> None:
    fields: dict[str, object] = {"timeout_seconds": 0.3, "max_attempts": 2}
    async with endpoint("hang", "hang", settings=fields) as (engine, server):
        error = await failure(engine, request())
        assert (error.kind, error.retryable) == ("timeout", True)
        assert "0.3 s" in str(error)
        assert server.served.arrivals <= 2


async def test_a_hang_ends_at_the_deadline() -> None:
    async with endpoint("hang") as (engine, _):
        error = await failure(engine, request(deadline=time.time() + 0.1))
        assert error.kind == "deadline"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_without_usage_is_garbage_and_never_estimated(stream: bool) -> None:
    async with endpoint("missing_usage") as (engine, _):
        error = await failure(engine, request(stream=stream))
        assert (error.kind, error.retryable) == ("garbage", False)
        assert "usage" in str(error)
        assert engine.totals().calls == 0


@pytest.mark.parametrize("fault", ["truncated_stream", "malformed_json"])
async def test_a_stream_that_breaks_after_its_first_words_is_not_repeated(fault: str) -> None:
    async with endpoint(fault) as (engine, server):
        error = await failure(engine, request(stream=True))
        assert error.kind == ("garbage" if fault == "malformed_json" else "unavailable")
        assert error.retryable
        assert server.served.arrivals == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_malformed_tool_arguments_become_a_call_with_an_error(stream: bool) -> None:
    async with endpoint("malformed_tool_call") as (engine, _):
        completion = await ask(engine, tools=[DELEGATE], stream=stream)
        (call,) = completion.tool_calls
        assert (call.name, call.arguments) == ("delegate", None)
        assert "not valid JSON" in str(call.error)
        assert call.raw_arguments.startswith("{")


async def test_a_malformed_call_in_the_history_does_not_break_the_next_request() -> None:
    async with endpoint() as (engine, _):
        broken = ToolCall(id="c1", name="", arguments=None, raw_arguments="{3", error="broken")
        turns = [
            user(QUESTION),
            Message(role="assistant", tool_calls=(broken,)),
            Message(role="tool", content="error: broken", tool_call_id="c1"),
        ]
        assert "89" in (await ask(engine, turns, tools=[DELEGATE])).text


async def test_an_unreachable_endpoint_is_unavailable() -> None:
    async with ScriptedServer() as server:
        url = server.url
    engine = OpenAIEngine(
        ModelSettings(
            engine="openai", model="m", base_url=url, max_attempts=2, backoff_seconds=0.01
        )
    )
    await engine.start()
    error = await failure(engine, request())
    assert (error.kind, error.retryable) == ("unavailable", True)
    assert "is the address right" in str(error)
    await engine.close()


async def test_an_unknown_model_is_a_bad_request() -> None:
    async with endpoint(models=("another",)) as (engine, server):
        error = await failure(engine, request())
        assert (error.kind, error.retryable) == ("bad_request", False)
        assert "gpt-test" in str(error)
        assert server.served.arrivals == 1


async def test_top_k_is_refused_unless_the_endpoint_supports_it() -> None:
    async with endpoint() as (engine, _):
        error = await failure(engine, request(sampling={"top_k": 5}))
        assert error.kind == "bad_request"
        assert "top_k" in str(error)
    async with endpoint(settings={"top_k": True}) as (engine, _):
        assert "89" in (await ask(engine, sampling={"top_k": 5})).text


async def test_raw_logprobs_that_do_not_match_the_sampling_are_dropped() -> None:
    async with endpoint(settings={"logprobs": "raw"}) as (engine, _):
        assert (await ask(engine)).logprobs
        assert (await ask(engine, sampling={"temperature": 1.0})).logprobs
        assert not (await ask(engine, sampling={"temperature": 0.7})).logprobs
        assert not (await ask(engine, sampling={"temperature": 1.0, "top_p": 0.9})).logprobs


@contextmanager
def retry_announced() -> Generator[asyncio.Event]:
    """Set when the engine logs that it waits before its next attempt."""
    announced = asyncio.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            announced.set()

    logger, listener = logging.getLogger("loopline.workers.engines.openai.engine"), Listener()
    logger.addHandler(listener)
    try:
        yield announced
    finally:
        logger.removeHandler(listener)


async def test_cancelling_during_a_retry_wait_takes_effect_at_once() -> None:
    plan = FaultPlan(sequence=("rate_limited",), retry_after_seconds=60)
    async with endpoint(faults=plan) as (engine, server):
        generate_request = request()
        with retry_announced() as announced:
            waiting = asyncio.create_task(failure(engine, generate_request))
            await asyncio.wait_for(announced.wait(), 5)
        await engine.cancel(generate_request.id)
        assert (await asyncio.wait_for(waiting, 5)).kind == "cancelled"
        assert server.served.arrivals == 1


async def test_requests_over_the_limit_wait_for_their_turn() -> None:
    fields: dict[str, object] = {"max_concurrency": 3}
    async with endpoint(latency_seconds=0.1, settings=fields) as (engine, server):
        await asyncio.gather(*(ask(engine, f"What is {n} + 2?") for n in range(12)))
        assert server.served.peak_in_flight in (2, 3)


async def test_a_request_that_waits_for_its_turn_ends_at_its_deadline() -> None:
    fields: dict[str, object] = {"max_concurrency": 1}
    async with endpoint("hang", settings=fields) as (engine, server):
        first = asyncio.create_task(failure(engine, request(id="first")))
        await server.served.wait_for_arrivals(1)
        error = await failure(engine, request(deadline=time.time() + 0.1))
        assert error.kind == "deadline"
        await engine.cancel("first")
        assert (await first).kind == "cancelled"
        assert "89" in (await ask(engine)).text


async def test_a_stream_delivers_text_at_once_and_calls_at_the_end() -> None:
    async with endpoint() as (engine, _):
        stream_events = await events(engine, request(tools=[DELEGATE], stream=True))
        last = stream_events[-1]
        assert isinstance(last, Completion)
        assert last.tool_calls
        assert "".join(piece.text for piece in deltas(stream_events)) == last.text
        assert "tool_call" not in last.text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"choices": "none"}',
        b'{"choices": [{"index": "first"}]}',
        b'{"choices": [{"index": 0, "message": {"content": 5}, "finish_reason": "stop"}]}',
        b'{"choices": [{"index": 7, "message": {"content": "x"}, "finish_reason": "stop"}]}',
        b'{"choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "eh"}],'
        b'"usage": {"prompt_tokens": 1, "completion_tokens": 1}}',
        b'{"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],'
        b'"usage": {"prompt_tokens": -1, "completion_tokens": 1}}',
        b'{"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],'
        b'"usage": {"prompt_tokens": 1.5, "completion_tokens": 1}}',
        b'{"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],'
        b'"usage": {"prompt_tokens": 1}}',
        b"\xff\xfe\x00",
    ],
)
async def test_a_body_of_the_wrong_shape_is_garbage(body: bytes) -> None:
    async with replying(body) as url:
        engine = OpenAIEngine(
            ModelSettings(engine="openai", model="m", base_url=url, max_attempts=1)
        )
        await engine.start()
        assert (await failure(engine, request())).kind == "garbage"
        await engine.close()


@pytest.mark.parametrize(
    ("content", "finish", "attempts", "kind"),
    [
        ('""', '"eh"', 1, "garbage"),
        ('"x"', '"abort"', 3, "unavailable"),
        ("5", '"stop"', 3, "garbage"),
    ],
)
@pytest.mark.parametrize("logprobs", [False, True])
async def test_an_unusable_answer_is_still_recorded_as_paid(
    content: str, finish: str, attempts: int, kind: str, logprobs: bool
) -> None:
    """Every delivery counts: the ledger is the endpoint's bill."""
    body = (
        f'{{"choices": [{{"index": 0, "message": {{"content": {content}}}, '
        f'"finish_reason": {finish}}}],'
        '"usage": {"prompt_tokens": 7, "completion_tokens": 2}}'
    )
    async with replying(body.encode()) as url:
        settings = ModelSettings(
            engine="openai", model="m", base_url=url, max_attempts=3, backoff_seconds=0.001,
            logprobs="processed" if logprobs else "none",
        )  # fmt: skip
        engine = OpenAIEngine(settings)
        await engine.start()
        stream_events: list[EngineEvent] = []

        async def submit() -> None:
            async for event in engine.submit(request()):
                stream_events.append(event)

        with pytest.raises(EngineError) as raised:
            await submit()
        assert raised.value.kind == kind
        usage = Usage(prompt=7, completion=2, source="provider")
        assert [
            stream_event for stream_event in stream_events if not isinstance(stream_event, Sending)
        ] == [Discarded(usage=usage, sending=number + 1) for number in range(attempts)]
        assert engine.totals() == EngineTotals(attempts, 7 * attempts, 2 * attempts)
        await engine.close()


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "-1e999"])
async def test_a_non_finite_logprob_is_garbage(number: str) -> None:
    body = (
        '{"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop",'
        f'"logprobs": {{"content": [{{"logprob": {number}}}]}}}}],'
        '"usage": {"prompt_tokens": 1, "completion_tokens": 1}}'
    )
    async with replying(body.encode()) as url:
        settings = ModelSettings(
            engine="openai", model="m", base_url=url, max_attempts=1, logprobs="processed"
        )
        engine = OpenAIEngine(settings)
        await engine.start()
        assert (await failure(engine, request())).kind == "garbage"
        await engine.close()


async def test_the_provider_s_token_details_reach_the_usage() -> None:
    body = {
        "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": None},
            "completion_tokens_details": {"reasoning_tokens": 20},
            "queue_time": 1.5,
        },
    }
    async with replying(json.dumps(body).encode()) as url:
        engine = OpenAIEngine(ModelSettings(engine="openai", model="m", base_url=url))
        await engine.start()
        completion = await ask(engine)
        await engine.close()
    assert completion.usage == Usage(
        prompt=100, cached=64, completion=30, reasoning=20, source="provider"
    )
