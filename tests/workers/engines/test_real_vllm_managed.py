"""A real vLLM server that the engine starts itself: whole models by a restart, and turns on a GPU
as far as a server without one supports them: it answers the routes, and does not sleep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.engine import TorchEngine
from loopline.workers.engines.vllm.engine import VllmEngine
from loopline.workers.gpu_turns import training_turn
from tests.workers.engines.asking import ask
from tests.workers.engines.real_servers import vllm_python
from tests.workers.engines.test_managed_vllm import server_of
from tests.workers.engines.test_torch_whole_models import shaken
from tests.workers.engines.tiny_model import make_tiny_model

# A server for CPUs compiles at its start, for which it runs openssl.
pytestmark = [pytest.mark.slow, pytest.mark.system]

LONG = {"max_tokens": 30}


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads have 32 dimensions: vLLM has no attention for smaller ones on a CPU."""
    vllm_python()
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny-qwen2", heads=2)


@pytest.fixture
async def engine(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[VllmEngine]:
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    settings = ModelSettings.model_validate(
        {
            "engine": "vllm", "model": str(tiny_model), "dtype": "float32",
            "vllm": {
                "python": vllm_python(), "plain_check": False, "max_rank": 8, "gpu_turns": "cpu",
                # No server on a CPU starts with it.
                "args": {"enforce-eager": True, "enable-sleep-mode": False},
                "environment": {
                    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                    "OMP_NUM_THREADS": "1",
                },
            },
        }
    )  # fmt: skip
    engine = VllmEngine(settings)
    await engine.start()
    yield engine
    await engine.close()


async def test_a_whole_model_replaces_the_pool_s_own_and_is_removed_again(
    engine: VllmEngine, tiny_model: Path, tmp_path: Path
) -> None:
    environment = server_of(engine).environ()
    assert "OPENAI_API_KEY" not in environment
    own_answer = await ask(engine, sampling=LONG)
    whole = shaken(tiny_model, tmp_path / "whole", 3)
    torch_engine = TorchEngine(ModelSettings(engine="torch", model=str(whole)))
    await torch_engine.start()
    wanted = await ask(torch_engine, sampling=LONG)
    await torch_engine.close()

    await asyncio.to_thread(_take_turn)
    early = asyncio.create_task(ask(engine, sampling=LONG))
    await asyncio.sleep(0)
    await engine.load_adapter("slm", str(whole), 1)
    late = await ask(engine, adapter="slm", sampling=LONG)
    assert (late.adapter_version, late.output_ids) == (1, wanted.output_ids)
    assert late.logprobs == pytest.approx(wanted.logprobs, abs=1e-4)
    assert (await early).output_ids == own_answer.output_ids
    await engine.unload_adapter("slm")
    assert (await ask(engine, sampling=LONG)).output_ids == own_answer.output_ids


def _take_turn() -> None:
    with training_turn("cpu"):
        pass
