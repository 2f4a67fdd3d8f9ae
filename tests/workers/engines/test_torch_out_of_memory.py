"""Running out of memory is backpressure: fewer concurrent rows, and every request is answered."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from loopline.workers.engines.local import scheduler
from loopline.workers.engines.local.row import Row
from loopline.workers.engines.protocol import Completion, Delta
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch import kv_cache
from loopline.workers.engines.torch.engine import TorchBackend, TorchEngine
from loopline.workers.engines.torch.kv_cache import KVCache
from tests.workers.engines.asking import ask, completions, events, failure, request
from tests.workers.engines.tiny_model import ANSWER

REQUESTS = 16


@pytest.fixture
async def engine(tiny_model: Path) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(ModelSettings(engine="torch", model=str(tiny_model), max_concurrency=64))
    await engine.start()
    yield engine
    await engine.close()


Starve = Callable[[int], None]


@pytest.fixture
def starve(engine: TorchEngine) -> Starve:
    """Let a pass over more than that many rows run out of memory midway."""
    model: Any = engine._loaded.model  # pyright: ignore
    most = [10**9]

    def before(_: object, inputs: tuple[torch.Tensor, ...]) -> None:
        if inputs[0].shape[0] > most[0]:
            raise torch.OutOfMemoryError(f"no room for {inputs[0].shape[0]} rows")

    model.model.layers[1].register_forward_pre_hook(before)

    def set_most(rows: int) -> None:
        most[0] = rows

    return set_most


async def answers(engine: TorchEngine) -> list[list[Any]]:
    requests = [
        request(stream=True, sampling={"temperature": 1.5 * (seed % 2), "seed": seed})
        for seed in range(REQUESTS)
    ]
    async with asyncio.timeout(60):
        return await asyncio.gather(
            *(events(engine, generate_request) for generate_request in requests)
        )


@pytest.mark.parametrize("most", [1, 3, 11])
async def test_all_requests_get_the_answers_of_a_run_with_enough_memory(
    engine: TorchEngine, starve: Starve, most: int
) -> None:
    expected = [stream_events[-1] for stream_events in await answers(engine)]
    starve(most)
    for stream_events, wanted in zip(await answers(engine), expected, strict=True):
        *deltas, completion = stream_events
        assert isinstance(completion, Completion)
        assert isinstance(wanted, Completion)
        assert completion.output_ids == wanted.output_ids
        assert completion.logprobs == pytest.approx(wanted.logprobs, abs=1e-3)
        assert (
            "".join(delta.text for delta in deltas if isinstance(delta, Delta)) == completion.text
        )


async def test_running_rows_are_preempted_when_memory_shrinks(
    engine: TorchEngine, starve: Starve
) -> None:
    streams = [engine.submit(request(stream=True)) for _ in range(8)]
    first = await asyncio.gather(*(anext(stream) for stream in streams))
    starve(3)

    async def rest(stream: Any) -> list[Any]:
        return [event async for event in stream]

    async with asyncio.timeout(60):
        remainders = await asyncio.gather(*(rest(stream) for stream in streams))
    for begin, (*deltas, completion) in zip(first, remainders, strict=True):
        assert isinstance(begin, Delta)
        assert completion.text == ANSWER == begin.text + "".join(delta.text for delta in deltas)


async def test_no_row_is_lost_when_the_cache_cannot_grow(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then some layers have the new allocation and some don't: none of it can be used."""
    expected = [stream_events[-1].output_ids for stream_events in await answers(engine)]
    fit = KVCache.fit

    def fit_some(self: KVCache, rows: int, columns: int) -> None:
        if rows > 5:
            self.free()
            raise torch.OutOfMemoryError("no room")
        fit(self, rows, columns)

    monkeypatch.setattr(KVCache, "fit", fit_some)
    assert [stream_events[-1].output_ids for stream_events in await answers(engine)] == expected


@pytest.mark.parametrize("got", [0, 2, 3], ids=["none", "a layer", "a layer and keys"])
async def test_a_cache_that_did_not_fit_the_first_pass_is_recreated_for_the_next(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch, got: int
) -> None:
    """The first pass allocates each layer when it reaches it."""
    layer: Any = kv_cache._Layer  # pyright: ignore[reportPrivateUsage]
    allocated, calls = layer._reallocate, itertools.count()

    def allocated_or_not(self: Any, *args: Any) -> torch.Tensor:
        if next(calls) == got:
            raise torch.OutOfMemoryError("no room for the cache")
        return allocated(self, *args)

    monkeypatch.setattr(layer, "_reallocate", allocated_or_not)
    error = await failure(engine, request())
    assert (error.kind, error.retryable) == ("unavailable", True)
    assert (await ask(engine)).text == ANSWER


async def test_completions_of_one_request_are_preempted_one_by_one(
    engine: TorchEngine, starve: Starve
) -> None:
    generate_request = request(sampling={"n": 6, "temperature": 1.0, "seed": 5})
    expected = await completions(engine, generate_request)
    starve(4)
    async with asyncio.timeout(60):
        results = await completions(engine, generate_request)
    assert [completion.output_ids for completion in results] == [
        completion.output_ids for completion in expected
    ]


async def test_preemptions_are_logged(
    engine: TorchEngine, starve: Starve, caplog: pytest.LogCaptureFixture
) -> None:
    starve(6)
    with caplog.at_level(logging.WARNING):
        await answers(engine)
    [first, *_] = [
        record.getMessage() for record in caplog.records if "memory" in record.getMessage()
    ]
    assert re.search(
        r"out of memory with (\d+) rows of tiny-qwen2 \(no room for \d+ rows\): "
        r"\d+ preempted, at most \d+ at once for now",
        first,
    )


async def four(engine: TorchEngine) -> list[Completion]:
    """Return the answers of four requests that are decoded together and end one after the other.
    None was trained, since an extra token in the cache would hardly change a trained one."""
    requests = [
        request(f"{'9' * number} and?", sampling={"max_tokens": 12 + 4 * number})
        for number in range(1, 5)
    ]
    async with asyncio.timeout(60):
        batches = await asyncio.gather(*(completions(engine, item) for item in requests))
    return [item for (item,) in batches]


class Choices:
    """Let token choices run out of memory, each after its pass: one for each of `failing`, in this
    order, when its condition is true."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *failing: Callable[[Choices], bool]
    ) -> None:
        self.failing = list(failing)
        self.rows: list[int] = []
        """Number of rows in each choice."""
        self.beside = 0
        """Running rows while another one is reread."""
        choose, step = scheduler.choose_tokens, TorchBackend.step

        def choose_or_fail(logits: torch.Tensor, *others: Any) -> Any:
            self.rows.append(len(logits))
            if self.failing and self.failing[0](self):
                del self.failing[0]
                raise torch.OutOfMemoryError("no room for the choice")
            return choose(logits, *others)

        def step_noted(backend: TorchBackend, feeds: Mapping[Row, int]) -> torch.Tensor:
            again = any(row.reading and row.output_ids for row in feeds)
            self.beside = len(backend._batch.rows) if again else 0  # pyright: ignore[reportPrivateUsage]
            return step(backend, feeds)

        monkeypatch.setattr(scheduler, "choose_tokens", choose_or_fail)
        monkeypatch.setattr(TorchBackend, "step", step_noted)

    def fifth_of_four(self) -> bool:
        """The failure is in the middle of the work on all four requests."""
        return self.rows.count(4) == 5

    def read_again(self) -> bool:
        """The failure is in the pass that rereads a preempted row, alongside another one."""
        return self.beside > 0


def assert_same(actual: list[Completion], expected: list[Completion]) -> None:
    for completion, reference in zip(actual, expected, strict=True):
        assert completion.output_ids == reference.output_ids
        assert completion.logprobs == pytest.approx(reference.logprobs, abs=1e-3)


async def test_sampling_without_memory_leaves_no_token_in_the_cache_twice(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await four(engine)
    choices = Choices(monkeypatch, Choices.fifth_of_four)
    assert_same(await four(engine), expected)
    assert not choices.failing


async def test_a_reread_row_without_memory_for_sampling_continues_correctly(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await four(engine)
    choices = Choices(monkeypatch, Choices.fifth_of_four, Choices.read_again)
    assert_same(await four(engine), expected)
    assert not choices.failing


async def test_a_request_that_does_not_fit_alone_is_refused_and_the_next_one_served(
    engine: TorchEngine, starve: Starve
) -> None:
    starve(0)
    error = await failure(engine, request())
    assert (error.kind, error.retryable) == ("unavailable", True)
    assert "does not fit even alone" in str(error)
    starve(64)
    assert (await ask(engine)).text == ANSWER
