"""Servers sleep while a training uses their GPU: no request reaches a sleeping one, and none is
lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopline.testing.sglang_double import SglangDouble
from loopline.testing.vllm_double import VllmDouble, write_program
from loopline.trainers.grpo.loop.clock import Clock
from loopline.trainers.grpo.loop.gpu_sharing import GpuSharing
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.sglang.engine import SglangEngine
from loopline.workers.engines.vllm.engine import VllmEngine
from loopline.workers.gpu_turns import ServerTurn, training_turn
from tests.bus.serving import until
from tests.workers.engines.asking import ask, events, request
from tests.workers.engines.test_managed_vllm import managed, server_of
from tests.workers.engines.tiny_model import ANSWER

GPU = "gpu0"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


async def in_turn(double: VllmDouble) -> None:
    """Take a turn in a thread, like a training: it waits, and finds the servers asleep."""

    def train() -> None:
        with training_turn(GPU):
            assert double.asleep

    await asyncio.to_thread(train)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
class TestSleep:
    @pytest.fixture
    async def double(self, kind: str, tiny_model: Path) -> AsyncIterator[VllmDouble]:
        async with (VllmDouble if kind == "vllm" else SglangDouble)(str(tiny_model)) as double:
            yield double

    @pytest.fixture
    async def engine(
        self, kind: str, tiny_model: Path, double: VllmDouble
    ) -> AsyncIterator[VllmEngine]:
        settings = ModelSettings.model_validate(
            {
                "engine": kind, "model": str(tiny_model), "base_url": double.url,
                kind: {"plain_check": False, "gpu_turns": GPU},
            }
        )  # fmt: skip
        engine = (VllmEngine if kind == "vllm" else SglangEngine)(settings)
        await engine.start()
        yield engine
        await engine.close()

    async def test_requests_run_before_and_after_a_turn_and_none_reaches_a_sleeping_server(
        self, engine: VllmEngine, double: VllmDouble
    ) -> None:
        double.pace, before = 0.005, len(double.asked)
        asking = [asyncio.create_task(ask(engine)) for _ in range(4)]
        stream = asyncio.create_task(events(engine, request(stream=True)))
        await until(lambda: len(double.asked) == before + 5, "the server has all requests")
        turn = asyncio.create_task(in_turn(double))
        await until(lambda: double.naps == 1, "it sleeps")
        late = [asyncio.create_task(ask(engine)) for _ in range(4)]
        await turn
        answers = await asyncio.gather(*asking, *late)
        assert {answer.text for answer in answers} == {ANSWER}
        assert await stream
        assert (double.naps, double.disturbed, double.asleep) == (1, 0, False)

    async def test_adapters_are_available_after_a_turn(
        self, engine: VllmEngine, double: VllmDouble, tiny_loras: list[Path]
    ) -> None:
        await engine.load_adapter("red", str(tiny_loras[0]), 1)
        before = await ask(engine, adapter="red")
        await in_turn(double)
        await engine.load_adapter("red", str(tiny_loras[1]), 2)
        await engine.load_adapter("red", str(tiny_loras[0]), 3)
        after = await ask(engine, adapter="red")
        assert before.output_ids == after.output_ids

    async def test_a_server_that_cannot_sleep_keeps_its_gpu_and_serves(
        self, engine: VllmEngine, double: VllmDouble
    ) -> None:
        double.mischief.refuses_sleep = True
        other = ServerTurn(GPU)

        def stop() -> None:
            if stopping.is_set():
                raise KeyboardInterrupt

        stopping = asyncio.Event()

        def train() -> None:
            with pytest.raises(KeyboardInterrupt), training_turn(GPU, stop):
                pytest.fail("it has no turn")

        training = asyncio.create_task(asyncio.to_thread(train))
        await until(other.is_wanted, "a training waits")
        assert (await ask(engine)).text == ANSWER
        stopping.set()
        await training

    async def test_a_training_loop_takes_its_turn_according_to_the_pool_s_table(
        self, kind: str, engine: VllmEngine, double: VllmDouble
    ) -> None:
        import torch

        models = {"slm": engine._settings}  # pyright: ignore[reportPrivateUsage]
        sharing = GpuSharing.of(("slm/caller", "slm/planner", "other"), models)
        assert (sharing.turns, sharing.rest) == ((GPU,), None)
        clock = Clock()

        def step() -> None:
            with sharing.turn(torch.device("cpu"), clock, lambda: None):
                assert double.asleep

        await asyncio.to_thread(step)
        assert clock.lap().wait > 0
        assert (await ask(engine)).text == ANSWER


@pytest.mark.slow
async def test_a_server_that_dies_while_asleep_is_restarted_after_the_turn(
    tiny_model: Path, tmp_path: Path
) -> None:
    engine = VllmEngine(managed(tiny_model, write_program(tmp_path), gpu_turns=GPU))
    await engine.start()
    server = server_of(engine)
    begun, over = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def train() -> None:
        with training_turn(GPU):
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(over.wait(), loop).result()

    training = asyncio.create_task(asyncio.to_thread(train))
    await begun.wait()
    os.kill(server.pid, signal.SIGKILL)
    process = engine._process  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    first = process.pid
    await until(lambda: not process._ready.is_set(), "it is gone")  # pyright: ignore[reportPrivateUsage]
    asking = asyncio.create_task(ask(engine))
    assert process.pid == first
    over.set()
    await training
    assert (await asking).text == ANSWER
    assert process.pid != first
    await engine.close()


def test_training_gets_the_gpu_share_that_servers_leave() -> None:
    table = {"model": "m", "engine": "vllm", "vllm": {"gpu_share": 0.4}}
    model = ModelSettings.model_validate(table)
    assert GpuSharing.of(("slm/a", "slm/b"), {"slm": model}).rest == pytest.approx(0.6)
    assert GpuSharing.of(("slm",), {"slm": ModelSettings(engine="torch", model="m")}).rest is None
