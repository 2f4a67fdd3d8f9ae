"""A caller's options that a model in this process follows with its grammar and its sampling."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch

from loopline.agents.records import ToolChoice
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Engine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.tool_markup import calls_of, write_tool_call
from tests.workers.engines.asking import CALCULATE, ask, failure, request
from tests.workers.engines.option_conformance import PICK, OptionConformance

PENALTIES = {"frequency_penalty": 1.9, "presence_penalty": 0.7, "max_tokens": 40}
SAMPLINGS: tuple[dict[str, Any], ...] = (
    PENALTIES,
    {**PENALTIES, "temperature": 1.3, "seed": 5},
    {**PENALTIES, "temperature": 1.3, "top_p": 0.8, "top_k": 30, "seed": 6},
)


class TestWithoutGrammar(OptionConformance):
    """The options tests without constrained tool calls."""

    @pytest.fixture
    async def engine(self, tiny_model: Path) -> AsyncIterator[Engine]:
        settings = ModelSettings(engine="torch", model=str(tiny_model), constrain_tools=False)
        engine = build_engine(settings)
        await engine.start()
        yield engine
        await engine.close()

    async def test_the_refusal_names_the_setting(self, engine: Engine) -> None:
        choice = ToolChoice(mode="required")
        error = await failure(engine, request(tools=[PICK], tool_choice=choice))
        assert "constrain_tools = true" in str(error)


@pytest.mark.parametrize("sampling", SAMPLINGS)
async def test_logprobs_belong_to_the_penalized_distribution(
    torch_engine: Engine, sampling: dict[str, Any]
) -> None:
    """Logprobs are recomputed from the model itself, one token at a time, with OpenAI's formula."""
    completion = await ask(torch_engine, sampling=sampling)
    plain = await ask(torch_engine, sampling={"max_tokens": 40})
    assert completion.output_ids != plain.output_ids
    model = torch_engine._loaded.model  # pyright: ignore
    for position, token in enumerate(completion.output_ids):
        before = completion.output_ids[:position]
        with torch.inference_mode():
            ids = torch.tensor([[*completion.prompt_ids, *before]], device=model.device)
            logits = model(input_ids=ids).logits[0, -1]
        logits = logits.clone()  # a copy may be changed outside of inference mode
        raw = float(logits.log_softmax(0)[token])
        for earlier, count in Counter(before).items():
            logits[earlier] -= count * 1.9 + 0.7
        logits = logits / sampling.get("temperature", 1.0)
        scores, tokens = logits.sort(descending=True)
        weights = scores[: sampling.get("top_k", len(scores))].double().softmax(0)
        size = int((weights.cumsum(0) - weights < sampling.get("top_p", 1.1)).sum())
        shares = weights[:size] / weights[:size].sum()
        support = dict(zip(tokens[:size].tolist(), shares.log().tolist(), strict=True))
        assert completion.logprobs[position] == pytest.approx(support[token], abs=1e-3)
        assert completion.raw_logprobs[position] == pytest.approx(raw, abs=1e-3)
        if "temperature" not in sampling:
            assert token == int(logits.argmax())


@pytest.mark.parametrize("sampling", SAMPLINGS)
async def test_top_logprobs_belong_to_the_sampled_distribution(
    torch_engine: Engine, llama_engine: Engine, sampling: dict[str, Any]
) -> None:
    for engine in (torch_engine, llama_engine):
        completion = await ask(engine, sampling=sampling, top_logprobs=20, token_texts=True)
        assert len(completion.top_logprobs) == len(completion.output_ids)
        places = zip(completion.tokens, completion.logprobs, completion.top_logprobs, strict=True)
        among = 0
        for text, logprob, likeliest in places:
            assert sum(math.exp(other) for _, other in likeliest) < 1.0 + 1e-4
            near = [other for name, other in likeliest if name == text]
            among += any(other == pytest.approx(logprob, abs=1e-4) for other in near)
            assert near or logprob <= likeliest[-1][1] + 1e-4
            if "temperature" not in sampling:
                assert likeliest[0] == (text, pytest.approx(logprob, abs=1e-4))
        assert among > len(completion.output_ids) // 2
        cut = completion.output_ids[:7]
        resumed = await ask(engine, sampling=sampling, top_logprobs=20, resume_ids=cut)
        assert len(resumed.top_logprobs) == len(resumed.output_ids)


async def test_a_narrow_nucleus_leaves_fewer_tokens_than_requested(
    torch_engine: Engine,
) -> None:
    sampling = {"temperature": 1.0, "top_p": 1e-6, "max_tokens": 3}
    completion = await ask(torch_engine, sampling=sampling, top_logprobs=5)
    assert [len(places) for places in completion.top_logprobs] == [1, 1, 1]
    assert completion.top_logprobs[0][0][1] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("sampling", SAMPLINGS[:2])
async def test_llama_cpp_applies_penalties_like_torch(
    torch_engine: Engine, llama_engine: Engine, sampling: dict[str, Any]
) -> None:
    """It continues from torch's ids and returns its own numbers for them."""
    reference = await ask(torch_engine, sampling=sampling)
    drawn = reference.output_ids[:-1]
    completion = await ask(llama_engine, sampling=sampling, resume_ids=drawn)
    assert completion.output_ids[: len(drawn)] == drawn
    assert completion.logprobs[: len(drawn)] == pytest.approx(reference.logprobs[:-1], abs=0.05)
    assert completion.logprobs != pytest.approx(completion.raw_logprobs, abs=0.5)


@pytest.mark.parametrize("sampling", SAMPLINGS)
async def test_a_penalized_completion_is_continued(
    torch_engine: Engine, sampling: dict[str, Any]
) -> None:
    full = await ask(torch_engine, sampling=sampling)
    for cut in range(1, len(full.output_ids), 5):
        resumed = await ask(torch_engine, sampling=sampling, resume_ids=full.output_ids[:cut])
        assert resumed.output_ids == full.output_ids
        assert resumed.logprobs == pytest.approx(full.logprobs, abs=1e-4)


async def test_a_required_call_combined_with_a_text_schema_is_refused(
    torch_engine: Engine,
) -> None:
    scripted = build_engine(ModelSettings(engine="scripted", model="scripted"))
    for engine in (torch_engine, scripted):
        error = await failure(
            engine,
            request(
                tools=[PICK],
                tool_choice=ToolChoice(mode="required"),
                json_schema={"type": "object"},
            ),
        )
        assert error.kind == "bad_request"
        assert "leave out one of the two" in str(error)


def test_only_the_first_call_counts_in_a_markup_without_a_grammar() -> None:
    call = write_tool_call("calculate", {"expression": "1"})
    other = call.replace("tool_call>", "function_call>")
    for allowed, count in ((True, 2), (False, 1)):
        single = request(tools=[CALCULATE], parallel_tool_calls=allowed)
        assert len(calls_of(single, 0, f"{other} {other}")) == count
    none = request(tools=[CALCULATE], tool_choice=ToolChoice(mode="none"))
    assert calls_of(none, 0, call) == ()
