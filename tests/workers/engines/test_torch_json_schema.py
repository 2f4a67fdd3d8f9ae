"""The torch engine under JSON schemas: whatever the model prefers, its output validates.

The tiny model has never seen JSON except for one tool call, so it would not have chosen nearly any
token here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import torch
from pydantic import BaseModel, ConfigDict, Field, RootModel

from loopline.agents.records import Message
from loopline.workers.engines.grammar.matcher import GrammarMatcher
from loopline.workers.engines.protocol import CannotContinue, Completion, EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.engine import TorchEngine
from tests.workers.engines.asking import (
    CALCULATE,
    QUESTION,
    ask,
    completions,
    failure,
    request,
    user,
)
from tests.workers.engines.tiny_model import ANSWER, special_ids


class Exact(BaseModel):
    """No extra field, and no number that is really a string. Every size is bounded, so that a
    completion ends before max_tokens."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Verdict(Exact):
    score: int = Field(ge=0, le=10)
    verdict: Literal["right", "wrong", 'can\'t "say" — ü']
    reason: str = Field(max_length=20)
    final: bool
    correction: int | None = Field(ge=-99, le=99)


class Step(Exact):
    operation: Literal["+", "-", "*"]
    operands: list[Annotated[int, Field(ge=0, le=999)]] = Field(min_length=2, max_length=3)


class Plan(Exact):
    steps: list[Step] = Field(min_length=1, max_length=3)
    verdict: Verdict


class Code(RootModel[Annotated[str, Field(pattern="^[A-F]{2}-[0-9]{3}$")]]):
    pass


class Bits(RootModel[Annotated[list[bool], Field(min_length=3, max_length=5)]]):
    pass


MODELS: list[type[BaseModel]] = [Verdict, Step, Plan, Code, Bits]
BUDGET = 400


@pytest.fixture
async def engine(tiny_model: Path) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(ModelSettings(engine="torch", model=str(tiny_model), max_concurrency=8))
    await engine.start()
    yield engine
    await engine.close()


def validate(model: type[BaseModel], completion: Completion) -> None:
    assert completion.finish_reason == "stop", completion.text
    model.model_validate_json(completion.text)
    assert completion.grammar_masked
    assert len(completion.logprobs) == len(completion.output_ids) == completion.usage.completion
    assert all(logprob <= 1e-6 for logprob in completion.logprobs)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
async def test_a_greedy_answer_validates(engine: TorchEngine, model: type[BaseModel]) -> None:
    schema = model.model_json_schema()
    validate(model, await ask(engine, json_schema=schema, sampling={"max_tokens": BUDGET}))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
async def test_random_samples_validate_and_do_not_affect_their_neighbours(
    engine: TorchEngine, model: type[BaseModel]
) -> None:
    free = [
        request(f"What is {seed} + 5?", sampling={"temperature": seed % 2 * 0.8, "seed": seed})
        for seed in range(4)
    ]
    alone = [await completions(engine, generate_request) for generate_request in free]
    bound = [
        request(
            json_schema=model.model_json_schema(),
            sampling={
                "temperature": 1.5,
                "seed": seed,
                "max_tokens": BUDGET,
                "n": 1 + seed % 2,
                "top_k": 5 * (seed % 3),
                "top_p": 1.0 - 0.2 * (seed % 2),
            },
        )
        for seed in range(8)
    ]
    mixed = [
        generate_request
        for pair in zip(bound, [*free, *free], strict=True)
        for generate_request in pair
    ]
    together = await asyncio.gather(
        *(completions(engine, generate_request) for generate_request in mixed)
    )
    for batch in together[0::2]:
        for completion in batch:
            validate(model, completion)
    for batch, expected in zip(together[1::2], [*alone, *alone], strict=True):
        assert [completion.output_ids for completion in batch] == [
            completion.output_ids for completion in expected
        ]
        assert not any(completion.grammar_masked for completion in batch)


async def test_the_same_seed_gives_the_same_tokens_under_a_schema(engine: TorchEngine) -> None:
    schema, sampling = Verdict.model_json_schema(), {"temperature": 1.5, "seed": 3}
    first = await ask(engine, json_schema=schema, sampling=sampling)
    assert (await ask(engine, json_schema=schema, sampling=sampling)).output_ids == first.output_ids


@pytest.mark.parametrize("temperature", [0.0, 0.7])
async def test_logprobs_belong_to_the_distribution_over_allowed_tokens(
    engine: TorchEngine, temperature: float
) -> None:
    """Logprobs are recomputed from the model itself: two tokens are possible, so two logits
    count."""
    loaded = engine._loaded  # pyright: ignore[reportPrivateUsage]
    assert loaded is not None
    sampling = {"temperature": temperature, "seed": 6}
    completion = await ask(engine, json_schema={"enum": [4, 7]}, sampling=sampling)
    four, seven = (loaded.codec.encode(digit)[0] for digit in "47")
    with torch.inference_mode():
        input_tensor = torch.tensor([completion.prompt_ids], device=loaded.device)
        logits = loaded.model(input_ids=input_tensor).logits[0, -1]
    possible = (logits[[four, seven]] / (temperature or 1.0)).log_softmax(0)
    (token,) = completion.output_ids
    assert completion.logprobs[0] == pytest.approx(
        float(possible[[four, seven].index(token)]), abs=1e-4
    )
    assert completion.text in ("4", "7")


async def test_text_that_could_continue_ends_with_the_model_s_own_end_of_turn(
    engine: TorchEngine, tiny_model: Path
) -> None:
    end = special_ids(tiny_model)["<|im_end|>"]
    schema = {"type": "integer", "minimum": 0, "maximum": 999}
    endings: set[bool] = set()
    for seed in range(60):
        sampling = {"temperature": 3.0, "seed": seed}
        completion = await ask(engine, json_schema=schema, sampling=sampling)
        assert 0 <= json.loads(completion.text) <= 999
        assert completion.finish_reason == "stop"
        endings.add(completion.output_ids[-1] == end)
        if completion.output_ids[-1] != end:
            assert completion.text == "0" or len(completion.text) == 3
    assert endings == {True, False}


async def test_a_later_turn_extends_an_answer_that_ended_with_its_grammar(
    engine: TorchEngine,
) -> None:
    first = await ask(engine, json_schema={"const": {"a": 1}})
    earlier = (*first.prompt_ids, *first.output_ids)
    turns = [user(QUESTION), Message(role="assistant", raw_text=first.text), user("And now?")]
    second = await ask(engine, turns, previous_ids=earlier, sampling={"max_tokens": 2})
    assert second.extends_previous
    assert second.prompt_ids[: len(earlier)] == earlier


async def test_max_tokens_truncates_with_finish_reason_length(engine: TorchEngine) -> None:
    schema = Verdict.model_json_schema()
    whole = await ask(engine, json_schema=schema, sampling={"max_tokens": BUDGET})
    for limit in (1, 5, len(whole.output_ids) - 1):
        completion = await ask(engine, json_schema=schema, sampling={"max_tokens": limit})
        assert completion.finish_reason == "length"
        assert completion.output_ids == whole.output_ids[:limit]
        assert completion.grammar_masked
    exact = {"max_tokens": len(whole.output_ids)}
    assert (await ask(engine, json_schema=schema, sampling=exact)).finish_reason == "stop"


async def test_a_stop_string_ends_the_text_as_usual(engine: TorchEngine) -> None:
    schema = Verdict.model_json_schema()
    completion = await ask(engine, json_schema=schema, sampling={"stop": ['"reason"']})
    assert completion.finish_reason == "stop"
    assert completion.text.endswith(", ")


async def test_a_tool_call_inside_a_string_is_not_made(engine: TorchEngine) -> None:
    call = '<tool_call>{"name": "calculate", "arguments": {"expression": "1"}}</tool_call>'
    completion = await ask(engine, json_schema={"const": call}, tools=[CALCULATE])
    assert json.loads(completion.text) == call
    assert completion.tool_calls == ()
    assert completion.finish_reason == "stop"


async def test_ids_that_do_not_fit_the_schema_cannot_be_continued(engine: TorchEngine) -> None:
    schema = Verdict.model_json_schema()
    free = await ask(engine)
    error = await failure(engine, request(json_schema=schema, resume_ids=free.output_ids[:3]))
    assert isinstance(error, CannotContinue)
    assert "JSON schema" in str(error)
    completion = await ask(engine, json_schema=schema, sampling={"max_tokens": BUDGET})
    too_long = (*completion.output_ids, completion.output_ids[-1])
    assert (
        await failure(engine, request(json_schema=schema, resume_ids=too_long))
    ).kind == "bad_request"


@pytest.mark.parametrize(
    "schema",
    [{"type": "integre"}, {"enum": list(range(99_999))}, {"not": {}}],
    ids=["unknown type", "huge", "not enforceable"],
)
async def test_a_refused_schema_fails_only_its_own_request(
    engine: TorchEngine, schema: dict[str, Any]
) -> None:
    error, *rest = await asyncio.gather(
        failure(engine, request(json_schema=schema)),
        ask(engine, QUESTION),
        ask(engine, json_schema={"const": "ok"}),
    )
    assert error.kind == "bad_request"
    assert "schema" in str(error)
    assert [completion.text for completion in rest] == [ANSWER, '"ok"']


async def test_a_grammar_that_fails_midway_fails_only_its_own_request(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This simulates a continuation that exceeds the limits on work."""
    consume = GrammarMatcher.consume
    token_ids: list[int] = []

    def fail_at_the_fifth(self: GrammarMatcher, token: int) -> None:
        token_ids.append(token)
        if len(token_ids) == 5:
            raise EngineError("too complex", kind="bad_request")
        consume(self, token)

    monkeypatch.setattr(GrammarMatcher, "consume", fail_at_the_fifth)
    generate_request = request(
        json_schema=Verdict.model_json_schema(), sampling={"n": 2, "temperature": 1.0}
    )
    error, free = await asyncio.gather(failure(engine, generate_request), ask(engine))
    assert str(error) == "too complex"
    assert free.text == ANSWER
    assert (await ask(engine)).text == ANSWER
    assert engine.totals().abandoned_tokens == 6
