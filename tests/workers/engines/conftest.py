"""Engines on the tiny model, for tests that use more than one kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Engine
from loopline.workers.engines.settings import ModelSettings


@pytest.fixture
async def torch_engine(tiny_model: Path) -> AsyncIterator[Engine]:
    engine = build_engine(ModelSettings(engine="torch", model=str(tiny_model)))
    await engine.start()
    yield engine
    await engine.close()


@pytest.fixture
async def llama_engine(tiny_gguf: Path) -> AsyncIterator[Engine]:
    engine = build_engine(ModelSettings(engine="llama_cpp", model=str(tiny_gguf)))
    await engine.start()
    yield engine
    await engine.close()
