"""An SGLang server that the engine starts itself: the double as a separate program."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from loopline.testing.sglang_double import write_program
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.sglang.engine import SglangEngine
from tests.workers.engines.asking import ask
from tests.workers.engines.test_managed_vllm import server_of
from tests.workers.engines.test_torch_whole_models import shaken
from tests.workers.engines.tiny_model import ANSWER


def managed(model: Path, python: Path, **sglang: object) -> ModelSettings:
    return ModelSettings.model_validate(
        {
            "engine": "sglang", "model": str(model),
            "sglang": {"python": str(python), "plain_check": False, **sglang},
        }
    )  # fmt: skip


@pytest.mark.slow
async def test_a_killed_server_is_restarted_with_the_published_weights(
    tiny_model: Path, tmp_path: Path
) -> None:
    engine = build_engine(managed(tiny_model, write_program(tmp_path)))
    assert isinstance(engine, SglangEngine)
    await engine.start()
    assert (await ask(engine)).text == ANSWER
    whole = shaken(tiny_model, tmp_path / "whole", 5)
    await engine.load_adapter("slm", str(whole), 1)
    before = await ask(engine, adapter="slm", sampling={"max_tokens": 30})
    asking = [
        asyncio.create_task(ask(engine, adapter="slm", sampling={"max_tokens": 30}))
        for _ in range(8)
    ]
    await asyncio.sleep(0)
    os.kill(server_of(engine).pid, signal.SIGKILL)
    answers = await asyncio.gather(*asking)
    assert {answer.output_ids for answer in answers} == {before.output_ids}
    await engine.unload_adapter("slm")
    assert (await ask(engine)).text == ANSWER
    await engine.close()


async def test_its_options_come_from_the_pool_and_the_table(
    tiny_model: Path, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nprintf "<%s> " "$@"\nexit 127\n')
    program.chmod(0o755)
    settings = managed(
        tiny_model, program, args={"tp_size": 2, "disable-cuda-graph": True}, max_rank=32,
        deterministic=True, gpu_turns="of-this-test", gpu_share=0.5,
    )  # fmt: skip
    engine = SglangEngine(settings.model_copy(update={"dtype": "bfloat16", "max_context": 100}))
    with pytest.raises(EngineError) as caught:
        await engine.start()
    message = str(caught.value)
    for words in (
        "<-m> <sglang.launch_server>", f"<--model-path> <{tiny_model}>", "<--dtype> <bfloat16>",
        "<--context-length> <100>", "<--max-lora-rank> <32>", "<--lora-target-modules> <all>",
        "<--grammar-backend> <llguidance>", "<--enable-deterministic-inference>", "<--tp-size> <2>",
        "<--enable-memory-saver>", "<--mem-fraction-static> <0.5>", "<--disable-cuda-graph>",
    ):  # fmt: skip
        assert words in message


async def test_a_missing_interpreter_is_reported_by_name(tiny_model: Path, tmp_path: Path) -> None:
    engine = SglangEngine(managed(tiny_model, tmp_path / "none"))
    with pytest.raises(EngineError, match=r"sglang\.python: there is no .*/none.*SGLang"):
        await engine.start()


def test_an_engine_s_table_is_refused_for_other_engines() -> None:
    for wrong in (
        {"engine": "vllm", "sglang": {"max_rank": 4}},
        {"engine": "sglang", "vllm": {"max_rank": 4}},
        {"engine": "torch", "sglang": {"max_rank": 4}},
        {"engine": "sglang", "base_url": "http://a:1", "sglang": {"gpu_share": 0.5}},
    ):
        with pytest.raises(ValueError, match=r"is for (engine|a managed)"):
            ModelSettings.model_validate({"model": "m", **wrong})
    assert ModelSettings(engine="sglang", model="m").managed
