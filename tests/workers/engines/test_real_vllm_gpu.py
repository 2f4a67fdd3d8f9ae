"""A real vLLM server that shares a GPU with trainings in turns: while it sleeps, its memory is
free; afterwards it answers as before, also with a published adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.engine import VllmEngine
from loopline.workers.gpu_turns import training_turn
from tests.workers.engines.asking import ask
from tests.workers.engines.real_servers import vllm_python
from tests.workers.engines.tiny_lora import make_tiny_lora
from tests.workers.engines.tiny_model import make_tiny_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

GPU = "gpu0"
ASLEEP = 0.1
"""Largest share of its memory that a sleeping server keeps: PyTorch's context and graphs."""
LONG = {"max_tokens": 30}


@pytest.fixture
async def engine(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[VllmEngine]:
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.getbasetemp()))
    settings = ModelSettings.model_validate(
        {
            "engine": "vllm", "model": str(make_tiny_model(tmp_path / "tiny", heads=2)),
            "dtype": "bfloat16",
            "vllm": {
                "python": vllm_python(), "plain_check": False, "max_rank": 8, "gpu_turns": GPU,
                "args": {"enforce-eager": True, "gpu-memory-utilization": 0.5},
            },
        }
    )  # fmt: skip
    engine = VllmEngine(settings)
    await engine.start()
    yield engine
    await engine.close()


def free_mb() -> float:
    return torch.cuda.mem_get_info()[0] / 1e6


def free_mb_in_turn() -> float:
    """Free memory while a training has its turn."""
    with training_turn(GPU):
        return free_mb()


async def test_a_sleeping_server_frees_its_memory_and_then_answers_as_before(
    engine: VllmEngine, tmp_path: Path
) -> None:
    total = torch.cuda.mem_get_info()[1] / 1e6
    adapter = make_tiny_lora(tmp_path / "tiny", tmp_path / "adapter", seed=1)
    await engine.load_adapter("slm", str(adapter), 1)
    before = [await ask(engine, adapter=name, sampling=LONG) for name in (None, "slm")]
    assert before[0].output_ids != before[1].output_ids
    awake_mb = total - free_mb()
    assert awake_mb > 0.4 * total

    asleep_mb = total - await asyncio.to_thread(free_mb_in_turn)
    assert asleep_mb < ASLEEP * awake_mb

    after = [await ask(engine, adapter=name, sampling=LONG) for name in (None, "slm")]
    assert [answer.output_ids for answer in after] == [answer.output_ids for answer in before]
    assert [answer.adapter_version for answer in after] == [None, 1]
    assert total - free_mb() > 0.4 * total
