"""Non-finite logits end their own request and no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch

from loopline.workers.engines.protocol import Completion, EngineError, GenerateRequest
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.engine import TorchEngine
from tests.workers.engines.asking import completions, request

FIRST = "9" * 40
OTHERS = ("9" * 90, "What?", "And 7?")
"""One with more in the cache, so that its attention covers everything of the first one while it
runs; and shorter ones, the last of which takes the first one's place."""


@pytest.fixture
async def engine(tiny_model: Path) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(ModelSettings(engine="torch", model=str(tiny_model), max_concurrency=8))
    await engine.start()
    yield engine
    await engine.close()


def damage(engine: TorchEngine, row: int, rows: int, passes: int) -> None:
    """Let a layer compute NaN for one row, in pass `passes` over this many rows."""
    model: Any = engine._loaded.model  # pyright: ignore
    remaining = [passes]

    def before(_: object, inputs: tuple[torch.Tensor, ...]) -> None:
        if inputs[0].shape[:2] == (rows, 1):
            remaining[0] -= 1
            if remaining[0] == 0:
                inputs[0][row] = torch.nan

    model.model.layers[1].register_forward_pre_hook(before)


def asked(count: int = 1) -> list[GenerateRequest]:
    """Return the requests, the first one with `count` completions."""
    sampled = {"max_tokens": 30, "temperature": 1.0, "seed": 3}
    return [
        request(FIRST, sampling={**sampled, "n": count}),
        *(request(question, sampling=sampled) for question in OTHERS),
    ]


async def answers(
    engine: TorchEngine, requests: list[GenerateRequest]
) -> list[list[Completion] | BaseException]:
    async with asyncio.timeout(60):
        return await asyncio.gather(
            *(completions(engine, generate_request) for generate_request in requests),
            return_exceptions=True,
        )


@pytest.mark.parametrize("count", [1, 2])
async def test_one_row_s_nan_fails_its_request_and_leaves_the_others_unchanged(
    engine: TorchEngine, count: int
) -> None:
    _, *expected = await answers(engine, asked(count))
    damage(engine, row=0, rows=count + len(OTHERS), passes=4)
    failed, *batches = await answers(engine, asked(count))
    assert isinstance(failed, EngineError)
    assert (failed.kind, failed.retryable) == ("internal", False)
    assert "logits are not finite" in str(failed)
    for batch, expected_batch in zip(batches, expected, strict=True):
        assert isinstance(batch, list)
        assert isinstance(expected_batch, list)
        assert batch[0].output_ids == expected_batch[0].output_ids
        assert batch[0].logprobs == pytest.approx(expected_batch[0].logprobs, abs=1e-3)


async def test_a_failed_row_leaves_nothing_for_later_requests(engine: TorchEngine) -> None:
    expected = await answers(engine, asked())
    damage(engine, row=0, rows=1 + len(OTHERS), passes=4)
    await answers(engine, asked())
    for batch, expected_batch in zip(await answers(engine, asked()), expected, strict=True):
        assert isinstance(batch, list)
        assert isinstance(expected_batch, list)
        assert batch[0].output_ids == expected_batch[0].output_ids
