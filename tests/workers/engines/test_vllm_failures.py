"""Occasional faults of vLLM servers, and the engine's reaction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from loopline.testing.vllm_double import VllmDouble
from loopline.workers.engines.protocol import CannotContinue, Completion, Delta, EngineError
from loopline.workers.engines.vllm.adapters import ServedAdapter
from loopline.workers.engines.vllm.engine import VllmEngine
from loopline.workers.engines.vllm.server import Server
from tests.bus.serving import until
from tests.workers.engines.asking import CALCULATE, ask, completions, deltas, events, failure
from tests.workers.engines.asking import request as make_request
from tests.workers.engines.test_vllm_engine import settings
from tests.workers.engines.tiny_model import ANSWER


@pytest.fixture
async def double(tiny_model: Path) -> AsyncIterator[VllmDouble]:
    async with VllmDouble(str(tiny_model)) as double:
        yield double


async def started(folder: Path, *doubles: VllmDouble, **fields: object) -> VllmEngine:
    more = {"servers": [double.url for double in doubles[1:]], "plain_check": False}
    base = settings(folder, doubles[0].url, vllm=more, plain_logprobs=False, **fields)
    engine = VllmEngine(base)
    await engine.start()
    return engine


@pytest.fixture
async def engine(tiny_model: Path, double: VllmDouble) -> AsyncIterator[VllmEngine]:
    engine = await started(tiny_model, double)
    yield engine
    await engine.close()


async def come_back(double: VllmDouble) -> None:
    """Wait for the server's death, and restart it."""
    await until(lambda: not double.is_up, "the server's death")
    await double.listen()


async def test_an_adapter_may_be_unloaded_twice_concurrently(
    tiny_model: Path, double: VllmDouble
) -> None:
    server = Server(settings(tiny_model, double.url), double.url, "")
    await asyncio.gather(*(server.unload(ServedAdapter("red@1", "")) for _ in range(3)))
    await server.close()


class TestOneServer:
    async def test_a_stream_that_breaks_with_its_server_resumes_at_its_position(
        self, engine: VllmEngine, double: VllmDouble
    ) -> None:
        for sampling in ({}, {"temperature": 1.0, "seed": 3}):
            whole = await ask(engine, sampling=sampling)
            double.mischief.dies_after = 6
            returning = asyncio.create_task(come_back(double))
            stream = await events(engine, make_request(stream=True, sampling=sampling))
            await returning
            last = stream[-1]
            assert isinstance(last, Completion)
            assert last.output_ids == whole.output_ids
            pieces = deltas(stream)
            assert "".join(piece.text for piece in pieces) == whole.text
            assert sum((piece.ids for piece in pieces), ()) == whole.output_ids

    async def test_an_answer_lost_with_its_server_is_requested_again(
        self, engine: VllmEngine, double: VllmDouble
    ) -> None:
        double.mischief.dies_after = 0
        returning = asyncio.create_task(come_back(double))
        assert (await ask(engine)).text == ANSWER
        await returning

    async def test_a_server_that_stays_away_is_a_retryable_error(
        self, tiny_model: Path, double: VllmDouble
    ) -> None:
        engine = await started(tiny_model, double, timeout_seconds=1)
        await double.die()
        error = await failure(engine, make_request())
        assert error.kind == "unavailable"
        assert error.retryable
        await engine.close()

    async def test_adapters_are_reloaded_before_a_restarted_server_serves(
        self, engine: VllmEngine, double: VllmDouble, tiny_loras: list[Path]
    ) -> None:
        await engine.load_adapter("red", str(tiny_loras[0]), 3)
        before = await ask(engine, adapter="red")
        await double.forget_adapters()  # no engine was told
        again = await ask(engine, adapter="red")
        await double.die()
        await double.listen()
        after = await ask(engine, adapter="red")
        assert before.output_ids == again.output_ids == after.output_ids
        assert after.adapter_version == 3
        assert len(double.loads) == 3
        assert set(double.loads) == {double.loads[0]}
        assert double.loads[0].startswith("red@3.")

    async def test_a_replaced_version_is_unloaded_after_its_last_request(
        self, engine: VllmEngine, double: VllmDouble, tiny_loras: list[Path]
    ) -> None:
        await engine.load_adapter("red", str(tiny_loras[0]), 1)
        double.pace = 0.01
        async with aclosing(engine.submit(make_request(adapter="red", stream=True))) as running:
            await anext(running)
            await engine.load_adapter("red", str(tiny_loras[1]), 2)
            assert {name.partition(".")[0] for name in double.adapters} == {"red@1", "red@2"}
            rest = [event async for event in running]
        last = rest[-1]
        assert isinstance(last, Completion)
        assert last.adapter_version == 1
        await until(lambda: len(double.adapters) == 1, "the old version is unloaded")
        (name,) = double.adapters
        assert name.startswith("red@2.")

    async def test_different_weights_under_the_same_version_get_another_name(
        self, engine: VllmEngine, double: VllmDouble, tiny_loras: list[Path]
    ) -> None:
        """A bus that lost its data counts from 1 again."""
        await engine.load_adapter("red", str(tiny_loras[0]), 1)
        first = await ask(engine, adapter="red")
        await engine.unload_adapter("red")
        await engine.load_adapter("red", str(tiny_loras[1]), 1)
        assert (await ask(engine, adapter="red")).output_ids != first.output_ids
        assert len(set(double.loads)) == 2

    async def test_an_adapter_of_another_base_is_refused(
        self, engine: VllmEngine, tiny_loras: list[Path], tmp_path: Path
    ) -> None:
        folder = tmp_path / "other"
        folder.mkdir()
        for file in tiny_loras[0].glob("adapter*"):
            (folder / file.name).write_bytes(file.read_bytes())
        (folder / "training.json").write_text(json.dumps({"base_sha256": "0" * 64}))
        with pytest.raises(EngineError, match="another base"):
            await engine.load_adapter("red", str(folder), 1)

    async def test_a_whole_model_is_refused(self, engine: VllmEngine, tiny_model: Path) -> None:
        with pytest.raises(EngineError, match="whole model"):
            await engine.load_adapter("red", str(tiny_model), 1)

    async def test_structured_outputs_that_a_server_refuses_are_reported(
        self, engine: VllmEngine, double: VllmDouble
    ) -> None:
        double.mischief.refuses_structures = True
        schema = make_request(json_schema={"type": "object"})
        tools = make_request(tools=[CALCULATE])
        for wanted, what in ((schema, "JSON schema"), (tools, "parameters of the tools")):
            error = await failure(engine, wanted)
            assert error.kind == "bad_request"
            assert what in str(error)

    @pytest.mark.parametrize(
        ("mischief", "words"),
        [
            ("wrong_ids", "the token id 1000"),
            ("wrong_prompt", "other prompt_token_ids"),
            ("wrong_model", "an answer from 'other'"),
        ],
    )
    async def test_an_impossible_answer_is_garbage(
        self, tiny_model: Path, double: VllmDouble, mischief: str, words: str
    ) -> None:
        engine = await started(tiny_model, double, max_attempts=2)
        setattr(double.mischief, mischief, True)
        for stream in (True, False):
            error = await failure(engine, make_request(stream=stream))
            assert error.kind == "garbage"
            assert words in str(error)
        await engine.close()

    async def test_tokens_after_the_end_are_not_part_of_the_text(
        self, engine: VllmEngine, double: VllmDouble
    ) -> None:
        double.mischief.late_tokens = True
        for stream in (True, False):
            (completion,) = await completions(engine, make_request(stream=stream))
            assert completion.text == ANSWER

    async def test_a_stream_without_its_end_is_requested_again(
        self, tiny_model: Path, double: VllmDouble
    ) -> None:
        engine = await started(tiny_model, double, max_attempts=2)
        double.mischief.loses_end = True
        error = await failure(engine, make_request(stream=True))
        assert error.retryable
        assert "broke off" in str(error)
        await engine.close()

    async def test_a_closed_request_ends_the_work_at_the_server(
        self, engine: VllmEngine, double: VllmDouble
    ) -> None:
        double.pace = 0.05
        async with aclosing(engine.submit(make_request(stream=True))) as stream:
            async for event in stream:
                if isinstance(event, Delta):
                    break

        async def at_rest() -> bool:
            return not any((await double.engine.in_use()).values())

        await until(at_rest, "the server has nothing to do")
        assert not any((await engine.in_use()).values())

    async def test_a_stream_with_other_ids_cannot_be_continued(self, engine: VllmEngine) -> None:
        whole = await ask(engine)
        wrong = (*whole.output_ids[:3], whole.output_ids[0])
        error = await failure(engine, make_request(stream=True, resume_ids=wrong))
        assert isinstance(error, CannotContinue)

    async def test_raw_logprobs_are_not_mistaken_for_those_at_a_temperature(
        self, tiny_model: Path, double: VllmDouble
    ) -> None:
        double.mischief.raw_logprobs = True
        engine = await started(tiny_model, double)
        assert not engine.checked.processed
        warm = await ask(engine, sampling={"temperature": 0.7, "seed": 1})
        assert (warm.logprobs, len(warm.raw_logprobs)) == ((), len(warm.output_ids))
        plain = await ask(engine, sampling={"temperature": 1.0, "seed": 1})
        assert plain.logprobs == plain.raw_logprobs
        assert len(plain.logprobs) == len(plain.output_ids)
        await engine.close()

    async def test_without_llguidance_calls_are_parsed_but_not_constrained(
        self, tiny_model: Path, double: VllmDouble
    ) -> None:
        double.mischief.has_guidance = False
        engine = await started(tiny_model, double)
        assert not engine.capabilities.tool_choice
        (call,) = (await ask(engine, tools=[CALCULATE])).tool_calls
        assert call.arguments == {"expression": "12 * 7 + 5"}
        assert "structured_outputs" not in double.asked[-1]
        await engine.close()

    async def test_a_temperature_that_the_server_does_not_support_is_refused(
        self, engine: VllmEngine
    ) -> None:
        error = await failure(engine, make_request(sampling={"temperature": 2.5}))
        assert error.kind == "bad_request"
        assert "2.5" in str(error)

    async def test_a_server_with_other_weights_is_refused(
        self, tiny_model: Path, double: VllmDouble
    ) -> None:
        checking = {"plain_check": True}
        engine = VllmEngine(settings(tiny_model, double.url, vllm=checking))
        await engine.start()
        assert engine.checked.difference is not None
        assert engine.checked.difference < 1e-4
        await engine.close()
        double.mischief.shift = -2.0
        engine = VllmEngine(settings(tiny_model, double.url, vllm=checking))
        with pytest.raises(EngineError, match="other weights"):
            await engine.start()


class TestSeveralServers:
    @pytest.fixture
    async def second(self, tiny_model: Path) -> AsyncIterator[VllmDouble]:
        async with VllmDouble(str(tiny_model)) as double:
            yield double

    @pytest.fixture
    async def pair(
        self, tiny_model: Path, double: VllmDouble, second: VllmDouble
    ) -> AsyncIterator[VllmEngine]:
        engine = await started(tiny_model, double, second)
        double.asked.clear()
        second.asked.clear()
        yield engine
        await engine.close()

    async def test_concurrent_requests_are_distributed(
        self, pair: VllmEngine, double: VllmDouble, second: VllmDouble
    ) -> None:
        await asyncio.gather(*(ask(pair, f"What is {n} + 1?") for n in range(24)))
        assert min(len(double.asked), len(second.asked)) >= 8

    async def test_a_prompt_goes_to_the_server_that_cached_its_prefix(
        self, pair: VllmEngine, double: VllmDouble, second: VllmDouble
    ) -> None:
        texts = {name: f"{name} " * 60 for name in ("seven", "eight")}
        await asyncio.gather(*(ask(pair, text) for text in texts.values()))
        assert (len(double.asked), len(second.asked)) == (1, 1)
        for text in texts.values():
            for _ in range(4):
                await ask(pair, f"{text} and so on")
        for server in (double, second):
            begins = {tuple(body["prompt"][:64]) for body in server.asked}
            assert (len(server.asked), len(begins)) == (5, 1)

    async def test_a_dead_server_is_bypassed_and_used_again_when_back(
        self, pair: VllmEngine, double: VllmDouble, second: VllmDouble, tiny_loras: list[Path]
    ) -> None:
        await pair.load_adapter("red", str(tiny_loras[0]), 1)
        expected = (await ask(pair, adapter="red")).output_ids
        await double.die()
        answers = await asyncio.gather(
            *(ask(pair, adapter="red", sampling={"max_tokens": 60}) for _ in range(8))
        )
        await double.listen()
        double.asked.clear()
        await second.die()
        answers += [await ask(pair, adapter="red", sampling={"max_tokens": 60})]
        assert {completion.output_ids[:20] for completion in answers} == {expected[:20]}
        assert double.asked

    async def test_a_stream_moves_to_the_other_server_when_its_own_dies(
        self, pair: VllmEngine, double: VllmDouble, second: VllmDouble
    ) -> None:
        whole = await ask(pair)
        for server in (double, second):
            server.mischief.dies_after = 5
        stream = asyncio.create_task(events(pair, make_request(stream=True)))
        await until(lambda: not (double.is_up and second.is_up), "a server's death")
        for server in (double, second):
            server.mischief.dies_after = None
        last = (await stream)[-1]
        assert isinstance(last, Completion)
        assert last.output_ids == whole.output_ids
