"""`plain_logprobs`: a separate pass at its end computes a completion's log-probabilities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch

from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.engine import TorchEngine, plain_tokens
from tests.workers.engines.asking import ask, completions, failure, request
from tests.workers.engines.tiny_model import ANSWER

WARM = {"temperature": 0.7, "top_p": 0.9, "seed": 3}


@pytest.fixture
async def engine(tiny_model: Path) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(ModelSettings(engine="torch", model=str(tiny_model), plain_logprobs=True))
    await engine.start()
    yield engine
    await engine.close()


def model_of(engine: TorchEngine) -> Any:
    return engine._loaded.model  # pyright: ignore


def plain_pass(engine: TorchEngine, ids: list[int], output: int) -> list[float]:
    model = model_of(engine)
    input_tensor = torch.tensor([ids], device=model.device)
    with torch.inference_mode():
        logits = model(input_ids=input_tensor, use_cache=False).logits[0]
    logprobs = logits.log_softmax(-1)[-output - 1 : -1]
    return logprobs.gather(-1, input_tensor[0, -output:, None])[:, 0].tolist()


async def test_each_candidate_of_a_prompt_has_its_own_plain_logprobs(engine: TorchEngine) -> None:
    generate_request = request(sampling={"n": 3, "temperature": 1.0, "seed": 5, "max_tokens": 12})
    for completion in await completions(engine, generate_request):
        expected = plain_pass(
            engine, [*completion.prompt_ids, *completion.output_ids], len(completion.output_ids)
        )
        assert completion.logprobs == pytest.approx(expected, abs=1e-5)
        assert completion.raw_logprobs == completion.logprobs


def test_each_row_has_its_own_pass_on_a_cpu() -> None:
    assert plain_tokens(torch.device("cpu")) == 0
    assert plain_tokens(torch.device("cuda")) > 0


@pytest.mark.parametrize("tokens", [2_048, 64, 0])
async def test_rows_that_end_together_share_passes(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    """Rows of several prompts: each has the result of its own pass."""
    place = "loopline.workers.engines.torch.engine.plain_tokens"

    def many(device: torch.device) -> int:
        return tokens

    monkeypatch.setattr(place, many)
    sizes: list[int] = []
    forward = model_of(engine).forward

    def counted(*arguments: Any, **named: Any) -> Any:
        if named.get("use_cache") is False:
            sizes.append(len(named["input_ids"]))
        return forward(*arguments, **named)

    monkeypatch.setattr(model_of(engine), "forward", counted)
    sampling = {"n": 4, "temperature": 1.0, "max_tokens": 2}
    requests = [request("to " * seed, sampling={**sampling, "seed": seed}) for seed in (1, 9)]
    answers = await asyncio.gather(*(completions(engine, entry) for entry in requests))
    assert sum(sizes) == 8
    assert (max(sizes) > 1) == (tokens > 0)
    for completion in (completion for several in answers for completion in several):
        whole = [*completion.prompt_ids, *completion.output_ids]
        expected = plain_pass(engine, whole, len(completion.output_ids))
        assert completion.logprobs == pytest.approx(expected, abs=1e-5)


async def test_parts_of_a_long_completion_have_the_logprobs_of_the_whole(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = {"temperature": 1.0, "seed": 5, "max_tokens": 12}
    whole = await ask(engine, sampling=sampling)
    monkeypatch.setattr("loopline.workers.engines.torch.engine.SCORE_CHUNK", 5)
    in_parts = await ask(engine, sampling=sampling)
    assert len(whole.output_ids) > 5
    assert in_parts.output_ids == whole.output_ids
    assert in_parts.logprobs == whole.logprobs


async def test_plain_logprobs_do_not_change_the_sampled_ones(
    engine: TorchEngine, tiny_model: Path
) -> None:
    completion = await ask(engine, sampling=WARM)
    usual = TorchEngine(ModelSettings(engine="torch", model=str(tiny_model)))
    await usual.start()
    try:
        drawn = await ask(usual, sampling=WARM)
    finally:
        await usual.close()
    expected = plain_pass(
        engine, [*completion.prompt_ids, *completion.output_ids], len(completion.output_ids)
    )
    assert completion.output_ids == drawn.output_ids
    assert completion.logprobs == drawn.logprobs
    assert completion.raw_logprobs == pytest.approx(expected, abs=1e-5)


async def test_a_continued_completion_has_plain_logprobs_from_its_first_token(
    engine: TorchEngine,
) -> None:
    whole = await ask(engine)
    rest = await ask(engine, resume_ids=whole.output_ids[:4])
    assert rest.output_ids == whole.output_ids
    assert rest.logprobs == whole.logprobs


async def test_a_pass_without_enough_memory_fails_only_its_own_request(
    engine: TorchEngine,
) -> None:
    passes = 0

    def first_has_no_room(_: object, __: object, kwargs: dict[str, Any]) -> None:
        nonlocal passes
        if kwargs.get("use_cache") is False:
            passes += 1
            if passes == 1:
                raise torch.OutOfMemoryError("no room for that many logits")

    model_of(engine).register_forward_pre_hook(first_has_no_room, with_kwargs=True)
    short = request(sampling={"max_tokens": 3})
    async with asyncio.timeout(60):
        error, completion = await asyncio.gather(failure(engine, short), ask(engine))
    assert error.kind == "unavailable"
    assert error.retryable
    assert completion.text == ANSWER


def test_only_torch_supports_plain_logprobs() -> None:
    with pytest.raises(ValueError, match=r"plain_logprobs.*torch"):
        ModelSettings(engine="llama_cpp", model="micro.gguf", plain_logprobs=True)
