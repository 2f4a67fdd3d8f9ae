"""A caller's options for a run's completions reach each engine and override the pool's defaults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from loopline.agents.records import Call, GenerationOptions, SamplingParams
from loopline.agents.usage import UsageEntry
from loopline.bus import Bus
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.gpu import Pool
from loopline.workers.messages import CompletionPayload, calls
from loopline.workers.scripted_api import ScriptedServer, ServerOptions
from tests.bus.payloads import admit
from tests.workers.engines.endpoints import replying
from tests.workers.engines.test_endpoint_habits import GOOD
from tests.workers.engines.test_endpoint_shapes import serving
from tests.workers.test_gpu import answer, request_of

DEFAULTS = {"temperature": 1.5, "top_p": 0.9, "max_tokens": 60}


async def called(
    bus: Bus,
    pool: Pool,
    options: GenerationOptions | None = None,
    sampling: SamplingParams | None = None,
) -> tuple[Call, ...]:
    """Return the pool's answer to the request of a new run."""
    run_id = await admit(bus, "other", seconds=600)
    delivery = await request_of(bus, run_id, 0)
    payload = delivery.payload
    assert isinstance(payload, CompletionPayload)
    payload = payload.model_copy(update={"options": options, "sampling": sampling})
    await pool.handle(replace(delivery, payload=payload))
    return tuple(calls.validate_json(await answer(bus, run_id)))


@pytest.fixture(params=["scripted", "openai", "torch", "llama_cpp"])
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[Pool]:
    fields: dict[str, object] = {"engine": request.param, "model": "scripted", **DEFAULTS}
    server = ScriptedServer(ServerOptions())
    match request.param:
        case "torch":
            fields["model"] = str(request.getfixturevalue("tiny_model"))
        case "llama_cpp":
            pytest.importorskip("llama_cpp", reason="needs make gguf")
            folder: Path = request.getfixturevalue("tiny_gguf")
            fields["model"] = str(folder)
        case "openai":
            await server.__aenter__()
            fields["base_url"] = server.url
        case _:
            pass
    settings = ModelSettings.model_validate(fields)
    engine = build_engine(settings)
    await engine.start()
    yield Pool("slm", settings, engine)
    await engine.close()
    if request.param == "openai":
        await server.__aexit__(None, None, None)


async def test_a_run_without_options_uses_the_pool_s_defaults(bus: Bus, pool: Pool) -> None:
    (call,) = await called(bus, pool)
    assert call.sampling == SamplingParams.model_validate({**DEFAULTS, "seed": 1})


async def test_the_caller_s_options_override_those_of_the_role_and_the_pool(
    bus: Bus, pool: Pool
) -> None:
    options = GenerationOptions(temperature=0.5, seed=9, stop=("89",))
    role = SamplingParams(temperature=1.0, top_p=0.8, max_tokens=50, seed=2)
    (call,) = await called(bus, pool, options, role)
    assert call.sampling == SamplingParams(
        temperature=0.5, top_p=0.8, max_tokens=50, seed=9, stop=("89",)
    )


async def test_max_tokens_truncates_the_completion(bus: Bus, pool: Pool) -> None:
    (call,) = await called(bus, pool, GenerationOptions(max_tokens=3))
    assert (call.usage.completion, call.finish_reason) == (3, "length")


async def test_several_stop_strings_end_the_text(bus: Bus, pool: Pool) -> None:
    greedy = GenerationOptions(temperature=0.0)
    (whole,) = await called(bus, pool, greedy)
    stop = (whole.text[9:12], whole.text[5:8])
    (call,) = await called(bus, pool, greedy.model_copy(update={"stop": stop}))
    assert call.text == whole.text[: min(whole.text.index(text) for text in stop)]
    assert call.finish_reason == "stop"


async def test_the_caller_s_seed_determines_n_completions(bus: Bus, pool: Pool) -> None:
    options = GenerationOptions(temperature=2.0, top_p=1.0, seed=4, n=3)
    answers = await called(bus, pool, options)
    assert len(answers) == 3
    again = await called(bus, pool, options)
    assert [call.text for call in answers] == [call.text for call in again]
    texts = {
        call.text
        for seed in range(5, 11)
        for call in await called(bus, pool, options.model_copy(update={"seed": seed, "n": 1}))
    }
    assert len(texts) > 1


async def test_a_narrow_nucleus_keeps_only_the_likeliest_tokens(bus: Bus, pool: Pool) -> None:
    if pool.engine.name not in ("torch", "llama_cpp"):
        pytest.skip(f"what the {pool.engine.name} engine says does not depend on top_p")
    (greedy,) = await called(bus, pool, GenerationOptions(temperature=0.0))
    (narrow,) = await called(bus, pool, GenerationOptions(temperature=2.0, top_p=1e-6))
    assert narrow.output_ids == greedy.output_ids


async def test_an_endpoint_receives_the_caller_s_options(bus: Bus) -> None:
    async with serving({"body": GOOD}) as server:
        settings = ModelSettings.model_validate(
            {"engine": "openai", "model": "m", "base_url": f"http://{server.host}/v1", **DEFAULTS}
        )
        engine = OpenAIEngine(settings)
        await engine.start()
        options = GenerationOptions(
            temperature=0.25, top_p=0.5, max_tokens=7, stop=("a", "b"), seed=3,
            frequency_penalty=0.5, presence_penalty=-1.0, token_texts=True,
        )  # fmt: skip
        await called(bus, Pool("slm", settings, engine), options)
        await engine.close()
    [arrived] = server.arrived
    assert arrived.body.items() >= {
        "temperature": 0.25, "top_p": 0.5, "max_tokens": 7, "stop": ["a", "b"], "seed": 3,
        "frequency_penalty": 0.5, "presence_penalty": -1.0, "logprobs": True,
    }.items()  # fmt: skip


async def test_a_lost_call_s_maximum_cost_follows_the_caller_s_limit_and_count(bus: Bus) -> None:
    """The pool's limit of 100 tokens does not count."""
    body = b'{"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}'
    run_id = await admit(bus, "other", seconds=600)
    async with replying(body) as url:
        settings = ModelSettings.model_validate(
            {
                "engine": "openai", "model": "m", "base_url": url, "max_attempts": 1,
                "price": {"prompt": 1, "completion": 10}, "max_tokens": 100,
            }
        )  # fmt: skip
        engine = OpenAIEngine(settings)
        await engine.start()
        delivery = await request_of(bus, run_id, 0)
        assert isinstance(delivery.payload, CompletionPayload)
        options = GenerationOptions(max_tokens=300, n=2)
        payload = delivery.payload.model_copy(update={"options": options})
        await Pool("slm", settings, engine).handle(replace(delivery, payload=payload))
        await engine.close()
    (line,) = await bus.usage(run_id)
    unknown = UsageEntry.model_validate_json(line).unknown
    assert unknown is not None
    assert unknown.completion == 600
    assert unknown.micro_dollars == unknown.prompt + 6000
