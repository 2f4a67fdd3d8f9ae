"""The llama.cpp engine on a real GGUF file: the tiny model, exported."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopline.agents.records import Message
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.local.row import Job, Row
from loopline.workers.engines.local.scheduler import Scheduler
from loopline.workers.engines.local.thread import ModelThread
from loopline.workers.engines.protocol import Completion, Engine, EngineError
from loopline.workers.engines.settings import ModelSettings
from tests.workers.engines.adapter_conformance import AdapterConformance
from tests.workers.engines.asking import ask, completions, deltas, events, failure, request, user
from tests.workers.engines.conformance import EngineConformance
from tests.workers.engines.tiny_model import ANSWER, CONTEXT

pytest.importorskip("llama_cpp", reason="needs make gguf")

from loopline.workers.engines.llama_cpp.context import Feed, LlamaContext
from loopline.workers.engines.llama_cpp.sequences import LlamaSequence, Sequences

# llguidance's adapter still calls it by its old name.
pytestmark = pytest.mark.filterwarnings("ignore:llama_token_get_attr is deprecated")

SAME = 1e-4
"""Maximum difference of logprobs of the same ids between batches of other shapes."""


def settings(file: Path, **fields: object) -> ModelSettings:
    return ModelSettings.model_validate(
        {"engine": "llama_cpp", "model": str(file), "dtype": "float32", **fields}
    )


async def started(file: Path, **fields: object) -> Engine:
    engine = build_engine(settings(file, **fields))
    await engine.start()
    return engine


def about(topic: int) -> tuple[Message, ...]:
    """A question that shares only its markup with any other."""
    return (user(f"{topic} " * 40),)


async def test_a_gpu_that_llama_cpp_was_not_built_for_is_refused(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the refusal it would silently run on the CPU."""
    monkeypatch.setattr("llama_cpp.llama_supports_gpu_offload", lambda: False)
    with pytest.raises(EngineError, match=r"device is 'cuda:1'.*GGML_CUDA=on") as caught:
        await started(tiny_gguf, device="cuda:1")
    assert not caught.value.retryable


class TestLlamaCppEngine(EngineConformance, AdapterConformance):
    schema_answer = None

    @pytest.fixture
    def adapters(self, tiny_gguf_loras: list[Path]) -> list[Path]:
        return tiny_gguf_loras

    @pytest.fixture
    async def engine(self, tiny_gguf: Path) -> AsyncIterator[Engine]:
        engine = await started(tiny_gguf)
        yield engine
        await engine.close()

    @pytest.fixture
    async def slow_engine(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
        """Delay every step by 20 ms, in the engine's own thread."""
        decode = LlamaContext.decode

        def linger(self: LlamaContext, feeds: Sequence[Feed]) -> Any:
            time.sleep(0.02)
            return decode(self, feeds)

        monkeypatch.setattr(LlamaContext, "decode", linger)
        return engine

    async def test_the_answer_matches_the_model_s_training(self, engine: Engine) -> None:
        assert (await ask(engine)).text == ANSWER

    async def test_ids_and_logprobs_match_the_torch_engine(
        self, engine: Engine, tiny_model: Path
    ) -> None:
        torch_engine = build_engine(ModelSettings(engine="torch", model=str(tiny_model)))
        await torch_engine.start()
        completion, reference = await ask(engine), await ask(torch_engine)
        scores = await torch_engine.score([*reference.prompt_ids, *reference.output_ids])
        await torch_engine.close()
        assert (completion.prompt_ids, completion.output_ids) == (
            reference.prompt_ids,
            reference.output_ids,
        )
        assert completion.logprobs == pytest.approx(reference.logprobs, abs=SAME)
        assert await engine.score(
            [*completion.prompt_ids, *completion.output_ids]
        ) == pytest.approx(
            scores,
            abs=5e-2,  # ids of the prompt may be very improbable
        )

    async def test_other_requests_in_the_batch_change_nothing(self, engine: Engine) -> None:
        alone = [await ask(engine, about(topic)) for topic in range(6)]
        together = await asyncio.gather(*(ask(engine, about(topic)) for topic in range(6)))
        assert [completion.output_ids for completion in together] == [
            completion.output_ids for completion in alone
        ]

    async def test_a_shared_prefix_is_computed_once(self, tiny_gguf: Path) -> None:
        """Send eight concurrent requests with the same long role prompt."""
        engine = await started(tiny_gguf)
        role = Message(role="system", content="You are a careful caller of tools. " * 6)
        conversations = [(role, user(f"question {place}")) for place in range(8)]
        results = await asyncio.gather(
            *(ask(engine, item, sampling={"max_tokens": 5}) for item in conversations)
        )
        await engine.close()
        computed = sum(item.usage.prompt - item.usage.cached for item in results)
        shared = len(results[0].prompt_ids) - 40
        assert computed < shared + 8 * 40

    async def test_a_cache_that_ignores_adapters_would_give_wrong_logprobs(
        self, engine: Engine, adapters: list[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """llama.cpp#26207, reproduced: with prefixes shared across adapters the first token's
        logprob belongs to no adapter. This proves that the test above can fail."""
        await engine.load_adapter("red", str(adapters[0]), 1)
        by_key = Sequences.longest_prefix

        def naive(
            self: Sequences, _: Hashable, ids: Sequence[int]
        ) -> tuple[LlamaSequence | None, int]:
            every = {sequence.key for sequence in (*self._in_use, *self._kept)}  # pyright: ignore[reportPrivateUsage]
            matches = [by_key(self, key, ids) for key in every]
            return max(matches, key=lambda match: match[1], default=(None, 0))

        await ask(engine)
        monkeypatch.setattr(Sequences, "longest_prefix", naive)
        mixed = await ask(engine, adapter="red")
        scores = await engine.score([*mixed.prompt_ids, *mixed.output_ids], "red")
        assert mixed.usage.cached > 0
        assert mixed.logprobs != pytest.approx(scores[len(mixed.prompt_ids) - 1 :], abs=0.05)

    async def test_a_reused_prefix_gives_the_same_answer(self, engine: Engine) -> None:
        first = await ask(engine, about(3))
        again = await ask(engine, about(3))
        assert again.usage.cached == len(first.prompt_ids) - 1
        assert again.output_ids == first.output_ids
        assert again.logprobs == pytest.approx(first.logprobs, abs=SAME)


async def test_requests_beyond_the_available_slots_wait_for_their_turn(tiny_gguf: Path) -> None:
    engine = await started(tiny_gguf, max_concurrency=2)
    results = await asyncio.gather(*(ask(engine, about(topic)) for topic in range(7)))
    assert all(completion.finish_reason in ("stop", "length") for completion in results)
    many = await completions(engine, request(sampling={"n": 5, "temperature": 1.0, "seed": 1}))
    assert [completion.index for completion in many] == [0, 1, 2, 3, 4]
    await engine.close()


@pytest.fixture
def set_back(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record for each shortage of cells whether there were rows to preempt."""
    outcomes: list[bool] = []
    original = Scheduler._preempt  # pyright: ignore[reportPrivateUsage]

    def noting(self: Scheduler, rows: Sequence[Row]) -> None:
        outcomes.append(bool(rows))
        original(self, rows)

    monkeypatch.setattr(Scheduler, "_preempt", noting)
    return outcomes


async def test_preempted_rows_finish_with_the_right_logprobs(
    tiny_gguf: Path, set_back: list[bool]
) -> None:
    """The room suffices for a few of the thirty rows."""
    engine = await started(tiny_gguf, max_context=128, max_tokens_in_flight=128, max_concurrency=30)
    sampling = {"temperature": 1.0, "seed": 9, "n": 30}
    results = await completions(engine, request((user("5 " * 40),), sampling=sampling))
    assert any(set_back)
    for completion in results:
        scores = await engine.score([*completion.prompt_ids, *completion.output_ids])
        assert completion.logprobs == pytest.approx(
            scores[len(completion.prompt_ids) - 1 :], abs=SAME
        )
    await engine.close()


async def test_a_preempted_stream_has_no_gap_and_no_repeat(
    tiny_gguf: Path, set_back: list[bool]
) -> None:
    engine = await started(tiny_gguf, max_tokens_in_flight=CONTEXT, max_concurrency=10)
    sampling = {"max_tokens": 150, "temperature": 5.0, "n": 10, "seed": 9}
    stream_events = await events(engine, request(stream=True, sampling=sampling))
    assert any(set_back)
    for index in range(10):
        [last] = [
            event
            for event in stream_events
            if isinstance(event, Completion) and event.index == index
        ]
        assert "".join(event.text for event in deltas(stream_events, index)) == last.text
    await engine.close()


@pytest.mark.parametrize("cells", [None, 128])
async def test_streams_are_continued_with_the_logits_of_a_few_tokens_at_a_time(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch, set_back: list[bool], cells: int | None
) -> None:
    """This is also true when rows are preempted in the middle."""
    monkeypatch.setattr("loopline.workers.engines.llama_cpp.engine.SCORE_CHUNK", 8)
    decode, wanted = LlamaContext.decode, [0]

    def noting(self: LlamaContext, feeds: Sequence[Feed]) -> Any:
        wanted.extend(feed.wanted for feed in feeds)
        return decode(self, feeds)

    monkeypatch.setattr(LlamaContext, "decode", noting)
    engine = await started(
        tiny_gguf, max_context=128, max_tokens_in_flight=cells, max_concurrency=16
    )
    seeds, sampling = range(16), {"temperature": 5.0, "max_tokens": 60}
    begun = [(await ask(engine, sampling={**sampling, "seed": seed})).output_ids for seed in seeds]
    rest = await asyncio.gather(
        *(
            # Other seeds would not lead to the given ids.
            ask(engine, sampling={**sampling, "seed": 100 + seed}, resume_ids=ids[:17])
            for seed, ids in zip(seeds, begun, strict=True)
        )
    )
    assert max(wanted) == 8
    assert any(set_back) == (cells is not None)
    for completion, ids in zip(rest, begun, strict=True):
        assert completion.output_ids[:17] == ids[:17]
        scores = await engine.score([*completion.prompt_ids, *completion.output_ids])
        assert completion.raw_logprobs == pytest.approx(
            scores[len(completion.prompt_ids) - 1 :], abs=SAME
        )
    await engine.close()


async def test_one_row_s_nan_fails_only_its_request(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await started(tiny_gguf)
    requests = [request(about(topic), sampling={"max_tokens": 12}) for topic in range(4)]
    expected = [await completions(engine, item) for item in requests]
    decode, damaged = LlamaContext.decode, [False]
    add, waiting, all_wait = ModelThread[Any].add, [0], threading.Event()

    def added(self: ModelThread[Any], job: Job) -> None:
        add(self, job)
        waiting[0] += 1
        if waiting[0] == len(requests):
            all_wait.set()

    def damage(self: LlamaContext, feeds: Sequence[Feed]) -> Any:
        """Spoil the first step with a row of each request; none starts before all of them do."""
        assert all_wait.wait(60)
        logits = decode(self, feeds)
        if len(logits) == len(requests) and not damaged[0]:
            logits[0] = np.nan
            damaged[0] = True
        return logits

    monkeypatch.setattr(ModelThread, "add", added)
    monkeypatch.setattr(LlamaContext, "decode", damage)
    results = await asyncio.gather(
        *(completions(engine, item) for item in requests), return_exceptions=True
    )
    [failed] = [item for item in results if isinstance(item, EngineError)]
    assert (failed.kind, failed.retryable) == ("internal", False)
    assert "logits are not finite" in str(failed)
    for result, reference in zip(results, expected, strict=True):
        if isinstance(result, list):
            assert result[0].output_ids == reference[0].output_ids
    await engine.close()


async def test_a_closed_request_releases_its_cells_within_a_step(tiny_gguf: Path) -> None:
    """One place and one context: the next request could not run alongside the cancelled one."""
    engine = await started(tiny_gguf, max_tokens_in_flight=CONTEXT, max_concurrency=1)
    generate_request = request(
        (user("x"),), sampling={"max_tokens": 400, "temperature": 3.0}, stream=True
    )
    async with aclosing(engine.submit(generate_request)) as running:
        await anext(running)
    assert (await ask(engine)).text == ANSWER
    assert engine.totals().abandoned_tokens > 0
    await engine.close()


async def test_the_error_for_an_overlong_prompt_names_both_lengths(tiny_gguf: Path) -> None:
    engine = await started(tiny_gguf)
    error = await failure(engine, request((user("word " * 2 * CONTEXT),)))
    assert error.kind == "context_overflow"
    assert f"holds {CONTEXT}" in str(error)
    await engine.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"not a model at all", "not a GGUF file"),
        (b"GGUF\x03\x00\x00\x00 and then garbage", "its header announces"),
    ],
)
async def test_a_file_that_is_not_a_model_is_refused(
    tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    with pytest.raises(EngineError, match=words) as caught:
        await started(file)
    assert caught.value.kind == "bad_request"


@pytest.fixture
def cut_gguf(tiny_gguf: Path, tmp_path: Path) -> Path:
    file = tmp_path / "cut.gguf"
    file.write_bytes(tiny_gguf.read_bytes()[:-10_000])
    return file


async def test_a_truncated_file_is_refused(cut_gguf: Path) -> None:
    with pytest.raises(EngineError, match=r"cut\.gguf: .*file bounds"):
        await started(cut_gguf)


async def test_the_error_for_a_missing_file_lists_the_alternatives(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"owner/repository/file\.gguf"):
        await started(tmp_path / "missing.gguf")
