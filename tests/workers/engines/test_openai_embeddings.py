"""The openai engine with an embedding endpoint that works or fails."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loopline.agents.embedding import EmbeddingInput, EmbeddingVectors
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.protocol import Completion, GenerateRequest
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.scripted_api.embeddings import vector_of
from tests.workers.engines.asking import completions, failure, request
from tests.workers.engines.endpoints import replying
from tests.workers.engines.test_openai_engine import endpoint

EMBEDDING: dict[str, object] = {"embeddings": True}


@asynccontextmanager
async def answering(answer: dict[str, Any]) -> AsyncGenerator[OpenAIEngine]:
    """An engine whose endpoint always returns this."""
    async with replying(json.dumps(answer).encode()) as url:
        engine = OpenAIEngine(
            ModelSettings.model_validate(
                {"engine": "openai", "model": "m", "base_url": url, "max_attempts": 1, **EMBEDDING}
            )
        )
        await engine.start()
        try:
            yield engine
        finally:
            await engine.close()


def asking(*texts: str, dimensions: int | None = None) -> GenerateRequest:
    wanted = EmbeddingInput(input=texts, dimensions=dimensions)
    return request().model_copy(update={"messages": (wanted.message,)})


def vectors_of(completion: Completion) -> list[list[float]]:
    return EmbeddingVectors.model_validate_json(completion.text).floats()


async def test_vectors_are_returned_in_the_order_of_their_texts_and_counted() -> None:
    async with endpoint(settings=EMBEDDING) as (engine, server):
        [answer] = await completions(engine, asking("a b", "c", dimensions=8))
    for vector, text in zip(vectors_of(answer), ("a b", "c"), strict=True):
        assert vector == pytest.approx(vector_of(text, 8), abs=1e-6)
    assert (answer.usage.prompt, answer.usage.completion) == (3, 0)
    assert server.served.as_json(listed=False)["prompt_tokens"] == 3


@pytest.mark.parametrize(
    "fault", ["rate_limited", "server_error", "malformed_json", "truncated_stream"]
)
async def test_a_transient_fault_is_retried(fault: str) -> None:
    async with endpoint(fault, settings=EMBEDDING) as (engine, server):
        [answer] = await completions(engine, asking("a"))
        assert len(vectors_of(answer)) == 1
        assert server.served.arrivals == 2


async def test_an_embedding_model_refuses_questions() -> None:
    async with endpoint(settings=EMBEDDING) as (engine, server):
        assert (await failure(engine, request())).kind == "bad_request"
        assert server.served.arrivals == 0


def body(**changes: Any) -> dict[str, Any]:
    data = [{"index": 0, "embedding": [1.0, 2.0]}]
    return {"data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}, **changes}


@pytest.mark.parametrize(
    "answer",
    [
        body(data=[]), body(data="none"), body(data=[{"index": 1, "embedding": [1.0]}]),
        body(data=[{"embedding": ["x"]}]), body(data=[{"embedding": []}]),
        body(data=[{"embedding": [1e300]}]), body(data=[{"embedding": "%%%"}]),
        body(data=[{"embedding": None}]), body(data=[{"index": 0, "embedding": [1.0]}] * 2),
        body(usage=None), body(usage={"prompt_tokens": -1}),
    ],
)  # fmt: skip
async def test_a_response_without_a_list_of_vectors_is_garbage(answer: dict[str, Any]) -> None:
    async with answering(answer) as engine:
        assert (await failure(engine, asking("a"))).kind == "garbage"


async def test_unrequested_base64_is_read() -> None:
    answer = body(data=[{"embedding": "AACAPwAAAEA="}])
    async with answering(answer) as engine:
        [completion] = await completions(engine, asking("a"))
    assert vectors_of(completion) == [[1.0, 2.0]]


def test_only_an_endpoint_provides_embeddings_and_has_no_fallback() -> None:
    with pytest.raises(ValueError, match="is for engine = 'openai'"):
        ModelSettings.model_validate({"engine": "scripted", "model": "m", "embeddings": True})
    with pytest.raises(ValueError, match="cannot be compared"):
        ModelSettings.model_validate(
            {"engine": "openai", "model": "m", "embeddings": True, "fallbacks": ["other"]}
        )
