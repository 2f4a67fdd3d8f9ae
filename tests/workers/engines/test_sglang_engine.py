"""The sglang engine against a double of its protocol: the common rules, and its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from loopline.testing.sglang_double import SglangDouble
from loopline.workers.engines.protocol import CannotContinue, Completion, Delta, EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.sglang.engine import SglangEngine
from loopline.workers.engines.sglang.wire import AnswerReader, OtherWeights
from tests.bus.serving import until
from tests.workers.engines.asking import (
    CALCULATE,
    ask,
    completions,
    deltas,
    events,
    failure,
    request,
)
from tests.workers.engines.test_vllm_engine import VllmConformance
from tests.workers.engines.tiny_model import ANSWER


def settings(folder: Path, url: str, **fields: object) -> ModelSettings:
    return ModelSettings.model_validate(
        {
            "engine": "sglang", "model": str(folder), "base_url": url, "plain_logprobs": True,
            "backoff_seconds": 0.05, "sglang": {"plain_check": False}, **fields,
        }
    )  # fmt: skip


async def started(folder: Path, *doubles: SglangDouble, **fields: object) -> SglangEngine:
    more = {"servers": [double.url for double in doubles[1:]], "plain_check": False}
    base = settings(folder, doubles[0].url, sglang=more, plain_logprobs=False, **fields)
    engine = SglangEngine(base)
    await engine.start()
    return engine


@pytest.fixture
async def double(tiny_model: Path) -> AsyncIterator[SglangDouble]:
    async with SglangDouble(str(tiny_model)) as double:
        yield double


class TestSglangEngine(VllmConformance):
    @pytest.fixture
    async def engine(self, tiny_model: Path, double: SglangDouble) -> AsyncIterator[SglangEngine]:
        engine = SglangEngine(settings(tiny_model, double.url))
        await engine.start()
        yield engine
        await engine.close()

    @pytest.fixture
    async def slow_engine(self, engine: SglangEngine, double: SglangDouble) -> SglangEngine:
        double.pace = 0.02
        return engine

    @pytest.fixture
    def adapters(self, tiny_loras: list[Path]) -> list[Path]:
        return tiny_loras


class TestOneServer:
    @pytest.fixture
    async def engine(self, tiny_model: Path, double: SglangDouble) -> AsyncIterator[SglangEngine]:
        engine = await started(tiny_model, double)
        yield engine
        await engine.close()

    @pytest.mark.parametrize("incremental", [False, True])
    async def test_a_stream_that_breaks_with_its_server_resumes_at_its_position(
        self, engine: SglangEngine, double: SglangDouble, incremental: bool
    ) -> None:
        double.incremental = incremental
        for sampling in ({}, {"temperature": 1.0, "seed": 3}):
            whole = await ask(engine, sampling=sampling)
            double.mischief.dies_after = 6
            returning = asyncio.create_task(_come_back(double))
            stream = await events(engine, request(stream=True, sampling=sampling))
            await returning
            last = stream[-1]
            assert isinstance(last, Completion)
            assert last.output_ids == whole.output_ids
            assert sum((piece.ids for piece in deltas(stream)), ()) == whole.output_ids

    @pytest.mark.parametrize("incremental", [False, True])
    async def test_several_completions_have_separate_seeds(
        self, engine: SglangEngine, double: SglangDouble, incremental: bool
    ) -> None:
        double.incremental = incremental
        sampling = {"temperature": 2.0, "seed": 7, "n": 3}
        together = await completions(engine, request(sampling=sampling, stream=True))
        for index, completion in enumerate(together):
            alone = await ask(engine, sampling={"temperature": 2.0, "seed": 7 + index})
            assert completion.output_ids == alone.output_ids

    async def test_a_server_without_deterministic_inference_promises_no_seeds(
        self, tiny_model: Path, double: SglangDouble
    ) -> None:
        double.deterministic = False
        engine = await started(tiny_model, double)
        assert not engine.capabilities.seeds
        resumed = request(stream=True, resume_ids=(1, 2), sampling={"temperature": 1.0})
        assert isinstance(await failure(engine, resumed), CannotContinue)
        assert (await ask(engine)).text == ANSWER
        await engine.close()

    async def test_nucleus_sampling_returns_no_misleading_logprobs(
        self, engine: SglangEngine
    ) -> None:
        warm = await ask(engine, sampling={"temperature": 0.7, "seed": 1})
        assert len(warm.logprobs) == len(warm.output_ids)
        nucleus = await ask(engine, sampling={"temperature": 0.7, "top_p": 0.5, "seed": 1})
        assert (nucleus.logprobs, nucleus.raw_logprobs) == ((), ())
        assert "except for top_p" in engine.checked.verdict

    async def test_adapters_are_reloaded_before_a_restarted_server_serves(
        self, engine: SglangEngine, double: SglangDouble, tiny_loras: list[Path]
    ) -> None:
        await engine.load_adapter("red", str(tiny_loras[0]), 3)
        before = await ask(engine, adapter="red")
        for stream in (True, False):
            await double.forget_adapters()  # no engine was told
            again = (await events(engine, request(adapter="red", stream=stream)))[-1]
            assert isinstance(again, Completion)
            assert again.output_ids == before.output_ids
        assert len(double.loads) == 3
        assert len(set(double.loads)) == 1

    async def test_a_closed_request_is_aborted_by_its_id(
        self, engine: SglangEngine, double: SglangDouble
    ) -> None:
        double.pace = 0.05
        async with aclosing(engine.submit(request(stream=True))) as stream:
            async for event in stream:
                if isinstance(event, Delta):
                    break
        await until(lambda: double.aborted == [double.asked[-1]["rid"]], "it is aborted")
        several = request(stream=True, sampling={"n": 2, "temperature": 1.0})
        async with aclosing(engine.submit(several)) as stream:
            await anext(stream)
        await until(lambda: double.aborted[1:] == double.asked[-1]["rid"], "both are aborted")

    async def test_a_finished_request_is_not_aborted(
        self, engine: SglangEngine, double: SglangDouble
    ) -> None:
        await ask(engine)
        await events(engine, request(stream=True))
        assert double.aborted == []

    async def test_grammars_that_a_server_refuses_are_reported(
        self, engine: SglangEngine, double: SglangDouble
    ) -> None:
        double.mischief.refuses_structures = True
        schema = {"type": "object"}
        for stream in (True, False):
            error = await failure(engine, request(json_schema=schema, stream=stream))
            assert error.kind == "bad_request"
            assert "JSON schema" in str(error)

    async def test_without_llguidance_calls_are_parsed_but_not_constrained(
        self, tiny_model: Path, double: SglangDouble
    ) -> None:
        double.mischief.has_guidance = False
        engine = await started(tiny_model, double)
        assert not engine.capabilities.tool_choice
        (call,) = (await ask(engine, tools=[CALCULATE])).tool_calls
        assert call.arguments == {"expression": "12 * 7 + 5"}
        await engine.close()

    async def test_answers_from_other_weights_are_rejected(
        self, tiny_model: Path, double: SglangDouble
    ) -> None:
        engine = await started(tiny_model, double, max_attempts=2)
        double.mischief.wrong_model = True
        for stream in (True, False):
            error = await failure(engine, request(stream=stream))
            assert error.retryable
            assert "'other'" in str(error)
        await engine.close()

    async def test_a_server_with_other_weights_is_refused(
        self, tiny_model: Path, double: SglangDouble
    ) -> None:
        checking = {"plain_check": True}
        engine = SglangEngine(settings(tiny_model, double.url, sglang=checking))
        await engine.start()
        assert engine.checked.difference is not None
        assert engine.checked.difference < 1e-4
        await engine.close()
        double.mischief.shift = -2.0
        engine = SglangEngine(settings(tiny_model, double.url, sglang=checking))
        with pytest.raises(EngineError, match=r"other weights"):
            await engine.start()


async def _come_back(double: SglangDouble) -> None:
    await until(lambda: not double.is_up, "the server's death")
    await double.listen()


def _event(tokens: list[int], *, total: int | None, done: int, **meta: object) -> str:
    scored = [[-0.5, token, None] for token in tokens]
    return json.dumps(
        {"meta_info": {"output_token_logprobs": scored, "completion_tokens": done, **meta}
         | ({} if total is None else {"output_token_logprobs_length": total})}
    )  # fmt: skip


class TestReader:
    @pytest.mark.parametrize("says_length", [True, False])
    @pytest.mark.parametrize("incremental", [True, False])
    def test_each_token_is_read_once(self, says_length: bool, incremental: bool) -> None:
        tokens = [5, 6, 7, 8, 9]
        reader, read = AnswerReader("server", 1), list[int]()
        sent = 0
        for end in (1, 3, 3, 5):
            brought = tokens[sent if incremental else 0 : end]
            total = end if says_length else None
            (piece,) = reader(_event(brought, total=total, done=end)).pieces
            read += piece.ids
            sent = end
        assert read == tokens

    @pytest.mark.parametrize(
        "raw", ["[]x", '{"meta_info": {}}', '{"index": 3, "meta_info": {}}', '"text"', "[[1]]",
                '{"meta_info": {"output_token_logprobs": [[null, 1, null]]}}',
                '{"meta_info": {"output_token_logprobs": [["a", 1, null]]}}'],
    )  # fmt: skip
    def test_an_invalid_answer_is_an_error_that_names_the_server(self, raw: str) -> None:
        with pytest.raises(EngineError, match="server") as caught:
            AnswerReader("server", 1)(raw)
        assert caught.value.kind == "garbage"

    def test_an_abort_s_status_decides_between_refusal_and_transient_error(self) -> None:
        for status, kind in ((400, "bad_request"), (500, "unavailable"), (None, "unavailable")):
            reason = {"type": "abort", "message": "no", "status_code": status}
            with pytest.raises(EngineError) as caught:
                AnswerReader("server", 1)(_event([], total=0, done=0, finish_reason=reason))
            assert caught.value.kind == kind

    def test_an_answer_from_another_version_is_refused(self) -> None:
        event = _event([1], total=1, done=1, weight_version="slm@3.abc")
        with pytest.raises(OtherWeights, match=r"slm@3\.abc"):
            AnswerReader("server", 1, weights="default")(event)
