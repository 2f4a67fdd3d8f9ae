"""The vllm engine against a double of its protocol: the common rules, and its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopline.testing.vllm_double import VllmDouble
from loopline.workers.engines.protocol import Engine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.engine import VllmEngine
from tests.workers.engines.adapter_conformance import AdapterConformance
from tests.workers.engines.asking import ask
from tests.workers.engines.conformance import EngineConformance
from tests.workers.engines.tiny_model import ANSWER, special_ids


def settings(folder: Path, url: str, **fields: object) -> ModelSettings:
    return ModelSettings.model_validate(
        {
            "engine": "vllm", "model": str(folder), "base_url": url, "plain_logprobs": True,
            "backoff_seconds": 0.05, "vllm": {"plain_check": False}, **fields,
        }
    )  # fmt: skip


class VllmConformance(EngineConformance, AdapterConformance):
    """Tests for the double and a real server alike."""

    schema_answer = None

    async def test_a_cancelled_load_releases_its_memory(
        self, engine: Engine, adapters: list[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.skip("a server's memory is its own: what is not asked for makes room there")

    async def test_the_answer_matches_the_model_s_training(self, engine: VllmEngine) -> None:
        assert (await ask(engine)).text == ANSWER

    async def test_the_end_of_turn_is_an_output_id_without_text(
        self, engine: VllmEngine, tiny_model: Path
    ) -> None:
        completion = await ask(engine)
        assert completion.output_ids[-1] == special_ids(tiny_model)["<|im_end|>"]
        assert "<|im_end|>" not in completion.text


class TestVllmEngine(VllmConformance):
    @pytest.fixture
    async def double(self, tiny_model: Path) -> AsyncIterator[VllmDouble]:
        async with VllmDouble(str(tiny_model)) as double:
            yield double

    @pytest.fixture
    async def engine(self, tiny_model: Path, double: VllmDouble) -> AsyncIterator[VllmEngine]:
        engine = VllmEngine(settings(tiny_model, double.url))
        await engine.start()
        yield engine
        await engine.close()

    @pytest.fixture
    async def slow_engine(self, engine: VllmEngine, double: VllmDouble) -> VllmEngine:
        double.pace = 0.02
        return engine

    @pytest.fixture
    def adapters(self, tiny_loras: list[Path]) -> list[Path]:
        return tiny_loras
