"""Invalid requests and settings: each raises an error that explains the problem."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from loopline.agents.records import SamplingParams
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Engine, EngineError
from loopline.workers.engines.settings import ModelSettings
from tests.workers.engines.asking import ask, failure, request


async def test_non_finite_logits_raise_an_error_and_produce_no_text(torch_engine: Engine) -> None:
    """The weights were fine when they were loaded; each request reports the problem."""
    model = torch_engine._loaded.model  # pyright: ignore
    completion = await ask(torch_engine, sampling={"max_tokens": 2})
    model.model.norm.weight.data.fill_(float("nan"))
    for sampling in ({}, {"temperature": 1.0}):
        error = await failure(torch_engine, request(sampling=sampling))
        assert "not finite" in str(error)
    with pytest.raises(EngineError, match="not finite"):
        await torch_engine.score([*completion.prompt_ids, *completion.output_ids])


async def test_no_engine_continues_ids_of_another_model(
    torch_engine: Engine, llama_engine: Engine
) -> None:
    scripted = build_engine(ModelSettings(engine="scripted", model="scripted"))
    for engine in (torch_engine, llama_engine, scripted):
        error = await failure(engine, request(resume_ids=(2**30,)))
        assert (error.kind, error.retryable) == ("bad_request", False), engine.name


@pytest.mark.parametrize("earlier", [(2**30,), (2**40, 1), (-1,)])
async def test_a_conversation_from_another_model_continues_as_a_new_sample(
    torch_engine: Engine, llama_engine: Engine, earlier: tuple[int, ...]
) -> None:
    """A run may be forked to another model with a smaller vocabulary."""
    scripted = build_engine(ModelSettings(engine="scripted", model="scripted"))
    for engine in (torch_engine, llama_engine, scripted):
        expected = await ask(engine, sampling={"max_tokens": 2})
        completion = await ask(engine, sampling={"max_tokens": 2}, previous_ids=earlier)
        assert not completion.extends_previous, engine.name
        assert completion.prompt_ids == expected.prompt_ids, engine.name


@pytest.mark.parametrize(
    "address", ["localhost:8000/v1", "", "http://", "ftp://here/v1", "/v1", "http:///v1", "x y"]
)
def test_an_invalid_endpoint_address_is_refused_before_it_is_tried(address: str) -> None:
    with pytest.raises(ValidationError, match="such as http://localhost:8000/v1"):
        ModelSettings(engine="openai", model="m", base_url=address)


@pytest.mark.parametrize(
    "wanted",
    [
        {"n": 0}, {"n": 10_000}, {"max_tokens": 0}, {"max_tokens": -1}, {"top_p": 0.0},
        {"top_p": 1.5}, {"top_p": float("nan")}, {"top_k": -1}, {"temperature": -0.1},
        {"temperature": float("nan")}, {"temperature": float("inf")}, {"seed": "x"},
    ],
)  # fmt: skip
def test_an_invalid_sampling_parameter_is_reported_by_name(wanted: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        SamplingParams.model_validate(wanted)
    (name,) = wanted
    assert caught.value.errors()[0]["loc"] == (name,)


@pytest.mark.parametrize("seed", [-1, -(2**70), 2**70])
async def test_any_integer_is_a_valid_seed(torch_engine: Engine, seed: int) -> None:
    sampling = {"temperature": 1.0, "seed": seed, "max_tokens": 2}
    first, again = [await ask(torch_engine, sampling=sampling) for _ in range(2)]
    assert first.output_ids == again.output_ids
