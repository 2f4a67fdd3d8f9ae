"""Whole models that replace the servers' initial one, in place or by a restart, without losing a
request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from loopline.testing.sglang_double import SglangDouble
from loopline.testing.vllm_double import VllmDouble, write_program
from loopline.workers.engines.protocol import Completion, Engine, EngineError
from loopline.workers.engines.sglang.engine import SglangEngine
from loopline.workers.engines.vllm.engine import VllmEngine
from tests.bus.serving import until
from tests.workers.engines.asking import ask, failure, request
from tests.workers.engines.test_managed_vllm import managed
from tests.workers.engines.test_sglang_engine import started as sglang_started
from tests.workers.engines.test_torch_whole_models import shaken
from tests.workers.engines.test_vllm_failures import started as vllm_started

LONG = {"max_tokens": 30}


@pytest.fixture(scope="module")
def models(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("whole")
    return [shaken(tiny_model, folder / f"whole-{seed}", seed) for seed in range(2)]


async def answers_of(folder: Path, make: Callable[[str], SglangDouble]) -> tuple[int, ...]:
    """Return the answer of a server that was started with this model."""
    async with make(str(folder)) as double:
        engine = await sglang_started(folder, double)
        answer = await ask(engine, sampling=LONG)
        await engine.close()
    return answer.output_ids


async def change_many(engine: Engine, models: list[Path], wanted: list[tuple[int, ...]]) -> None:
    """Exchange whole models while requests are in progress; every answer comes from the version
    that it names, and none is lost."""
    base_ids = (await ask(engine, sampling=LONG)).output_ids
    early = [asyncio.create_task(ask(engine, sampling=LONG)) for _ in range(8)]
    await asyncio.sleep(0)
    by_version = {0: base_ids}
    late: list[Completion] = []
    for version, (folder, ids) in enumerate(zip(models * 2, wanted * 2, strict=True), start=1):
        await engine.load_adapter("slm", str(folder), version)
        by_version[version] = ids
        asking = [asyncio.create_task(ask(engine, adapter="slm", sampling=LONG)) for _ in range(4)]
        await asyncio.sleep(0)
        late += await asyncio.gather(*asking)
    results = [*await asyncio.gather(*early), *late]
    assert len(results) == 24
    assert all(result.output_ids == by_version[result.adapter_version] for result in results)
    assert {result.adapter_version for result in results} == {0, 1, 2, 3, 4}
    await engine.unload_adapter("slm")
    assert (await ask(engine, sampling=LONG)).output_ids == base_ids


class TestExchangedInPlace:
    @pytest.fixture
    async def double(self, tiny_model: Path) -> AsyncIterator[SglangDouble]:
        async with SglangDouble(str(tiny_model)) as double:
            yield double

    @pytest.fixture
    async def engine(self, tiny_model: Path, double: SglangDouble) -> AsyncIterator[SglangEngine]:
        engine = await sglang_started(tiny_model, double)
        yield engine
        await engine.close()

    @pytest.mark.slow
    async def test_no_request_is_lost_and_each_answer_comes_from_its_version(
        self, engine: SglangEngine, models: list[Path]
    ) -> None:
        wanted = [await answers_of(folder, SglangDouble) for folder in models]
        await change_many(engine, models, wanted)

    async def test_a_restarted_server_has_the_published_weights_before_it_answers(
        self, engine: SglangEngine, double: SglangDouble, models: list[Path]
    ) -> None:
        await engine.load_adapter("slm", str(models[0]), 1)
        before = await ask(engine, adapter="slm", sampling=LONG)
        await double.forget_adapters()  # no engine was told
        again = await ask(engine, adapter="slm", sampling=LONG)
        await double.die()
        await double.listen()
        after = await ask(engine, adapter="slm", sampling=LONG)
        assert before.output_ids == again.output_ids == after.output_ids
        assert len(double.exchanges) == 3
        assert set(double.exchanges) == {double.exchanges[0]}

    async def test_the_pool_s_own_model_answers_no_request_meanwhile(
        self, engine: SglangEngine, models: list[Path]
    ) -> None:
        await engine.load_adapter("slm", str(models[0]), 1)
        error = await failure(engine, request())
        assert (error.kind, error.retryable) == ("unknown_adapter", True)

    async def test_a_server_serves_one_model_at_a_time(
        self, engine: SglangEngine, models: list[Path], tiny_loras: list[Path]
    ) -> None:
        await engine.load_adapter("slm/red", str(tiny_loras[0]), 1)
        with pytest.raises(EngineError, match=r"serve slm/red"):
            await engine.load_adapter("slm", str(models[0]), 1)
        await engine.unload_adapter("slm/red")
        await engine.load_adapter("slm", str(models[0]), 1)
        with pytest.raises(EngineError, match=r"serve slm:"):
            await engine.load_adapter("slm/red", str(tiny_loras[0]), 1)

    async def test_a_policy_switches_from_an_adapter_to_a_whole_model_and_back(
        self, engine: SglangEngine, models: list[Path], tiny_loras: list[Path]
    ) -> None:
        await engine.load_adapter("slm", str(tiny_loras[0]), 1)
        first = await ask(engine, adapter="slm", sampling=LONG)
        await engine.load_adapter("slm", str(models[0]), 2)
        whole = await ask(engine, adapter="slm", sampling=LONG)
        await engine.load_adapter("slm", str(tiny_loras[0]), 3)
        last = await ask(engine, adapter="slm", sampling=LONG)
        assert first.output_ids == last.output_ids != whole.output_ids

    async def test_weights_that_a_server_refuses_leave_the_previous_ones_in_place(
        self, engine: SglangEngine, double: SglangDouble, models: list[Path], tmp_path: Path
    ) -> None:
        await engine.load_adapter("slm", str(models[0]), 1)
        before = await ask(engine, adapter="slm", sampling=LONG)
        broken = tmp_path / "broken"
        broken.mkdir()
        for file in models[1].iterdir():
            (broken / file.name).write_bytes(file.read_bytes())
        double.mischief.refuses_weights = True
        with pytest.raises(EngineError, match="refused the weights"):
            await engine.load_adapter("slm", str(broken), 2)
        double.mischief.refuses_weights = False
        after = await ask(engine, adapter="slm", sampling=LONG)
        assert (after.adapter_version, after.output_ids) == (1, before.output_ids)

    async def test_a_model_of_another_configuration_is_refused(
        self, engine: SglangEngine, models: list[Path], tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        for file in models[0].iterdir():
            (other / file.name).write_bytes(file.read_bytes())
        config = (other / "config.json").read_text()
        (other / "config.json").write_text(config.replace('"rms_norm_eps"', '"rms_norm_epsilon"'))
        with pytest.raises(EngineError, match=r"config\.json differs"):
            await engine.load_adapter("slm", str(other), 1)


class TestRestarted:
    @pytest.fixture
    async def engine(self, tiny_model: Path, tmp_path: Path) -> AsyncIterator[VllmEngine]:
        engine = VllmEngine(managed(tiny_model, write_program(tmp_path)))
        await engine.start()
        yield engine
        await engine.close()

    @pytest.mark.slow
    async def test_no_request_is_lost_and_each_answer_comes_from_its_version(
        self, engine: VllmEngine, models: list[Path]
    ) -> None:
        wanted = [await answers_of(folder, SglangDouble) for folder in models]
        await change_many(engine, models, wanted)

    @pytest.mark.slow
    async def test_a_server_that_dies_comes_back_with_the_published_weights(
        self, engine: VllmEngine, models: list[Path]
    ) -> None:
        await engine.load_adapter("slm", str(models[0]), 1)
        before = await ask(engine, adapter="slm", sampling=LONG)
        process = engine._process  # pyright: ignore[reportPrivateUsage]
        assert process is not None
        assert process._process is not None  # pyright: ignore[reportPrivateUsage]
        process._process.terminate()  # pyright: ignore[reportPrivateUsage]
        await until(lambda: not process._ready.is_set(), "it ends")  # pyright: ignore[reportPrivateUsage]
        after = await ask(engine, adapter="slm", sampling=LONG)
        assert (after.adapter_version, after.output_ids) == (1, before.output_ids)


async def test_unmanaged_servers_cannot_be_restarted_and_the_error_explains_it(
    tiny_model: Path, models: list[Path]
) -> None:
    async with VllmDouble(str(tiny_model)) as double:
        engine = await vllm_started(tiny_model, double)
        with pytest.raises(EngineError, match=r"already running.*managed = true"):
            await engine.load_adapter("slm", str(models[0]), 1)
        await engine.close()
