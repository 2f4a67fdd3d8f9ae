"""A vLLM server that the engine starts itself: the double as a separate program."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from loopline.testing.vllm_double import write_program
from loopline.workers.engines.protocol import EngineBroken, EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.engine import VllmEngine
from loopline.workers.engines.vllm.managed import ManagedServer
from tests.bus.serving import until
from tests.workers.engines.asking import ask
from tests.workers.engines.tiny_model import ANSWER


def managed(model: Path, python: Path, **vllm: object) -> ModelSettings:
    return ModelSettings.model_validate(
        {
            "engine": "vllm", "model": str(model),
            "vllm": {"python": str(python), "plain_check": False, **vllm},
        }
    )  # fmt: skip


def server_of(engine: VllmEngine) -> psutil.Process:
    """Return its first process, below the guardian."""
    process = engine._process  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    assert process.pid is not None
    (server,) = psutil.Process(process.pid).children()
    return server


@pytest.mark.slow
class TestManaged:
    @pytest.fixture
    async def engine(self, tiny_model: Path, tmp_path: Path) -> AsyncIterator[VllmEngine]:
        engine = VllmEngine(managed(tiny_model, write_program(tmp_path)))
        await engine.start()
        yield engine
        await engine.close()

    async def test_a_killed_server_is_restarted_and_no_request_is_lost(
        self, engine: VllmEngine, tiny_loras: list[Path]
    ) -> None:
        await engine.load_adapter("red", str(tiny_loras[0]), 2)
        red = await ask(engine, adapter="red")
        asking = [asyncio.create_task(ask(engine, adapter=a)) for a in ("red", None) * 8]
        await asyncio.sleep(0)
        os.kill(server_of(engine).pid, signal.SIGKILL)
        answers = await asyncio.gather(*asking)
        assert [answer.output_ids for answer in answers[::2]] == [red.output_ids] * 8
        assert [answer.text for answer in answers[1::2]] == [ANSWER] * 8
        assert (await ask(engine, adapter="red")).output_ids == red.output_ids

    async def test_closing_the_engine_leaves_nothing_of_its_server(
        self, engine: VllmEngine
    ) -> None:
        server = server_of(engine)
        family = [server, *server.children(recursive=True)]
        await engine.close()
        await until(lambda: not any(p.is_running() for p in family), "the server is gone")


async def test_a_server_that_does_not_start_is_reported_with_its_last_output(
    tiny_model: Path, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'no kernel image is available' >&2\nexit 3\n")
    program.chmod(0o755)
    engine = VllmEngine(managed(tiny_model, program))
    with pytest.raises(EngineBroken, match=r"code 3.*no kernel image is available"):
        await engine.start()


async def test_output_that_is_read_after_the_exit_is_reported(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ManagedServer._log_lines  # pyright: ignore[reportPrivateUsage]

    async def read_later(server: ManagedServer, process: Process) -> None:
        await process.wait()
        await read(server, process)

    monkeypatch.setattr(ManagedServer, "_log_lines", read_later)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'ImportError: no kernels' >&2\nexit 127\n")
    program.chmod(0o755)
    with pytest.raises(EngineBroken, match=r"code 127.*ImportError: no kernels"):
        await VllmEngine(managed(tiny_model, program)).start()


async def test_the_root_cause_is_reported_though_other_tracebacks_follow_it(
    tiny_model: Path, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    output = tmp_path / "output"
    output.write_text(
        "(EngineCore pid=8) ERROR 11-28 [core.py:1330]     from flashinfer import (\n"
        "(EngineCore pid=8) ERROR 11-28 [core.py:1330] ModuleNotFoundError: No module named 'f'\n"
        "(EngineCore pid=8) ModuleNotFoundError: No module named 'f'\n"
        + "(APIServer pid=7)     await waiting()\n" * 40
        + "(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause\n"
    )
    program.write_text(f"#!/bin/sh\ncat {output}\nexit 1\n")
    program.chmod(0o755)
    engine = VllmEngine(managed(tiny_model, program))
    with pytest.raises(EngineBroken) as caught:
        await engine.start()
    assert (
        ": ModuleNotFoundError: No module named 'f'"
        " | RuntimeError: Engine core initialization failed. See root cause"
        "; its last lines: (APIServer pid=7)     await waiting()"
    ) in str(caught.value)


async def test_a_missing_interpreter_is_reported_by_name(tiny_model: Path, tmp_path: Path) -> None:
    engine = VllmEngine(managed(tiny_model, tmp_path / "none"))
    with pytest.raises(EngineError, match=r"there is no .*/none"):
        await engine.start()


async def test_its_options_come_from_the_pool_and_the_table(
    tiny_model: Path, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nprintf "<%s> " "$@"\nexit 127\n')
    program.chmod(0o755)
    args = {"gpu_memory_utilization": 0.5, "enforce-eager": True, "async-scheduling": False,
            "hf-overrides": {"a": 1}}  # fmt: skip
    settings = managed(tiny_model, program, args=args, max_rank=32)
    engine = VllmEngine(settings.model_copy(update={"dtype": "bfloat16", "max_context": 100}))
    with pytest.raises(EngineError) as caught:
        await engine.start()
    message = str(caught.value)
    for words in (
        f"<serve> <{tiny_model}>", "<--dtype> <bfloat16>", "<--max-model-len> <100>",
        "<--max-lora-rank> <32>", "<--gpu-memory-utilization> <0.5>", "<--enforce-eager>",
        '<--hf-overrides> <{"a": 1}>', "<--logprobs-mode> <processed_logprobs>",
    ):  # fmt: skip
        assert words in message
    assert "async-scheduling" not in message


def test_a_pool_has_either_an_address_or_a_managed_server() -> None:
    assert ModelSettings(engine="vllm", model="m").managed
    for wrong in (
        {"engine": "vllm", "base_url": "http://a/v1", "managed": True},
        {"engine": "torch", "managed": True},
        {"engine": "vllm", "managed": False},
        {"engine": "vllm", "vllm": {"servers": ["http://b/v1"]}},
    ):
        with pytest.raises(ValueError, match=r"managed|servers"):
            ModelSettings.model_validate({"model": "m", **wrong})
