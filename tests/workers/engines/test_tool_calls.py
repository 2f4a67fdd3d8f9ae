"""Both local engines with tools: whatever the model prefers, a closed call is a valid one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from loopline.agents.records import ToolSpec
from loopline.agents.tools.calculator import calculate
from loopline.agents.tools.handover import delegate, delegate_many
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Completion, Engine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.tool_markup import CLOSE, OPEN
from tests.workers.engines.asking import (
    CALCULATE,
    ask,
    completions,
    deltas,
    events,
    failure,
    request,
)
from tests.workers.engines.tiny_model import ANSWER

# llguidance's adapter still calls it by its old name.
pytestmark = pytest.mark.filterwarnings("ignore:llama_token_get_attr is deprecated")

DECLARED = {tool.name: tool for tool in (calculate, delegate, delegate_many)}
TOOLS = tuple(tool.spec for tool in DECLARED.values())
WILD: dict[str, Any] = {"temperature": 5.0, "max_tokens": 200}


Start = Callable[..., Awaitable[Engine]]


@pytest.fixture(params=["torch", "llama_cpp"])
async def start(request: pytest.FixtureRequest) -> AsyncIterator[Start]:
    """Starts engines of one kind on the tiny model, with given settings."""
    kind = str(request.param)
    model = request.getfixturevalue("tiny_model" if kind == "torch" else "tiny_gguf")
    running: list[Engine] = []

    async def started(**fields: object) -> Engine:
        values = {"engine": kind, "model": str(model), "dtype": "float32", **fields}
        running.append(build_engine(ModelSettings.model_validate(values)))
        await running[-1].start()
        return running[-1]

    yield started
    for engine in running:
        await engine.close()


@pytest.fixture
async def engine(start: Start) -> Engine:
    return await start()


def opened(engine: Any) -> tuple[int, ...]:
    """Ids of an opening tag: a model's first tokens of a tool call."""
    return tuple(engine._loaded.codec.encode(OPEN))


async def test_a_model_that_writes_garbage_is_constrained_to_valid_calls(engine: Engine) -> None:
    wild = [
        request(tools=TOOLS, sampling={**WILD, "seed": seed}, resume_ids=opened(engine))
        for seed in range(24)
    ]
    closed: list[str] = []
    for (completion,) in await asyncio.gather(
        *(completions(engine, generate_request) for generate_request in wild)
    ):
        assert completion.grammar_masked
        assert completion.text.startswith(OPEN)
        for call in completion.tool_calls:
            if call.arguments is None:
                assert completion.finish_reason == "length"
                assert (call.error or "").startswith("the call was cut off")
            else:
                DECLARED[call.name].parse(call.arguments)
                closed.append(call.name)
    assert len(closed) >= 3, "the test is of calls that are closed"


async def test_each_of_several_completions_follows_its_own_grammar_state(engine: Engine) -> None:
    sampling = {**WILD, "temperature": 1.5, "n": 4, "seed": 1}
    results = await completions(engine, request(tools=[CALCULATE], sampling=sampling))
    assert len(results) == 4
    for completion in results:
        assert completion.grammar_masked
        for call in completion.tool_calls:
            assert call.arguments is not None or completion.finish_reason == "length"


async def test_output_that_is_already_valid_stays_the_same(engine: Engine, start: Start) -> None:
    """The model knows one call by heart, and its text is free: its output is the same with and
    without a grammar."""
    plain = await start(constrain_tools=False)
    for tools in ([CALCULATE], TOOLS):
        bound, free = await ask(engine, tools=tools), await ask(plain, tools=tools)
        assert (bound.output_ids, bound.text) == (free.output_ids, free.text)
        assert [call.name for call in bound.tool_calls] == [call.name for call in free.tool_calls]
        assert (bound.grammar_masked, free.grammar_masked) == (True, False)


async def test_free_text_has_the_model_s_own_logprobs(engine: Engine, start: Start) -> None:
    plain = await start(constrain_tools=False)
    for seed in range(6):
        sampling = {"temperature": 1.3, "seed": seed, "stop": [OPEN]}
        bound = await ask(engine, tools=[CALCULATE], sampling=sampling)
        free = await ask(plain, tools=[CALCULATE], sampling=sampling)
        assert (bound.output_ids, bound.text) == (free.output_ids, free.text)
        assert bound.logprobs == pytest.approx(free.logprobs, abs=1e-4)


async def test_without_tools_nothing_is_constrained(engine: Engine) -> None:
    completion = await ask(engine)
    assert completion.text == ANSWER
    assert not completion.grammar_masked


async def test_a_stream_with_calls_is_continued_without_gap_or_repeat(engine: Engine) -> None:
    generate_request = request(tools=[CALCULATE], stream=True)
    whole = await events(engine, generate_request)
    full = whole[-1]
    assert isinstance(full, Completion)
    assert OPEN in full.text
    for cut in range(1, len(full.output_ids), 5):
        rest = await events(
            engine, generate_request.model_copy(update={"resume_ids": full.output_ids[:cut]})
        )
        last = rest[-1]
        assert isinstance(last, Completion)
        assert (last.output_ids, last.tool_calls) == (full.output_ids, full.tool_calls)
        assert last.logprobs == pytest.approx(full.logprobs, abs=1e-4)
        beginning = "".join(piece.text for piece in deltas(whole)[:cut])
        assert beginning + "".join(piece.text for piece in deltas(rest)) == full.text


async def test_ids_that_are_not_a_valid_call_cannot_be_continued(engine: Any) -> None:
    ids = tuple(engine._loaded.codec.encode(f"{OPEN}\nand so on"))
    error = await failure(
        engine, request(tools=[CALCULATE], resume_ids=ids, sampling={"temperature": 1.0})
    )
    assert error.kind == "bad_request"
    assert "these tools" in str(error)


async def test_a_stop_string_or_a_token_limit_truncates_a_call_as_usual(engine: Engine) -> None:
    stopped = await ask(engine, tools=[CALCULATE], sampling={"stop": ["arguments"]})
    limited = await ask(engine, tools=[CALCULATE], sampling={"max_tokens": 8})
    for completion, reason in ((stopped, "tool_calls"), (limited, "length")):
        (call,) = completion.tool_calls
        assert call.arguments is None
        assert CLOSE not in completion.text
        assert completion.finish_reason == reason


async def test_parameters_that_cannot_be_enforced_fail_only_their_own_request(
    engine: Engine,
) -> None:
    bad = ToolSpec(name="bad_one", description="", parameters={"not": {}})
    error, completion = await asyncio.gather(
        failure(engine, request(tools=[CALCULATE, bad])), ask(engine)
    )
    assert error.kind == "bad_request"
    assert "'bad_one'" in str(error)
    assert completion.text == ANSWER
