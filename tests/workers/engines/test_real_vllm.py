"""The vllm engine on a real vLLM server: the common rules, its check's verdict, its death."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from loopline.workers.engines.vllm.engine import VllmEngine
from tests.workers.engines.real_servers import (
    VLLM_ENVIRONMENT,
    RealServer,
    free_port,
    running,
    vllm_command,
    vllm_python,
)
from tests.workers.engines.test_vllm_engine import VllmConformance, settings
from tests.workers.engines.tiny_lora import make_tiny_lora
from tests.workers.engines.tiny_model import make_tiny_model

# A server for CPUs compiles at its start, for which it runs openssl.
pytestmark = [pytest.mark.slow, pytest.mark.system]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads have 32 dimensions: vLLM has no attention for smaller ones on a CPU."""
    vllm_python()
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny-qwen2", heads=2)


@pytest.fixture(scope="module")
def tiny_loras(tiny_model: Path) -> list[Path]:
    return [
        make_tiny_lora(tiny_model, tiny_model.parent / f"lora-{seed}", seed) for seed in range(3)
    ]


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[RealServer]:
    port = free_port()
    log = tmp_path_factory.mktemp("vllm") / "log"
    command = vllm_command(tiny_model, port)
    with running(command, port, log, health="/health", **VLLM_ENVIRONMENT) as server:
        yield server


class TestRealVllm(VllmConformance):
    @pytest.fixture
    async def engine(self, tiny_model: Path, server: RealServer) -> AsyncIterator[VllmEngine]:
        engine = VllmEngine(settings(tiny_model, server.url, vllm={}))
        await engine.start()
        yield engine
        await engine.close()

    @pytest.fixture
    async def slow_engine(self, engine: VllmEngine) -> VllmEngine:
        """A pass takes a few milliseconds."""
        return engine

    @pytest.fixture
    def adapters(self, tiny_loras: list[Path]) -> list[Path]:
        return tiny_loras

    async def test_its_logprobs_match_a_plain_forward_pass(self, engine: VllmEngine) -> None:
        checked = engine.checked
        assert checked.processed
        assert checked.guidance
        assert checked.difference is not None
        assert checked.difference < 1e-4
