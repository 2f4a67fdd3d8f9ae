"""The tiny model, made once per session."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from loopline.testing import RedisProcess
from tests.workers.engines.tiny_lora import make_tiny_lora
from tests.workers.engines.tiny_model import make_tiny_model, write_pickle_checkpoint
from tests.workers.engines.tiny_sentencepiece import make_tiny_sentencepiece_model


@pytest.fixture
def shared_server(any_server: RedisProcess) -> RedisProcess:
    """One server for all tests: only scripts could depend on the flavour of Redis, and the bus
    tests run them on all flavours."""
    return any_server


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the trained tiny model. Don't change it."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny-qwen2")


@pytest.fixture
def tiny_model_copy(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(tiny_model, tmp_path / "tiny-qwen2"))


@pytest.fixture
def pickle_model(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model as a pickle checkpoint."""
    return write_pickle_checkpoint(tiny_model, tmp_path / "pickled")


@pytest.fixture(scope="session")
def tiny_gguf(tiny_model: Path) -> Path:
    """The tiny model for llama.cpp, in float32."""
    pytest.importorskip("llama_cpp", reason="needs make gguf")
    from loopline.trainers.export.gguf import export_gguf
    from loopline.trainers.export.precision import Precision

    export_gguf(tiny_model, tiny_model.parent / "tiny.gguf", Precision.F32)
    return tiny_model.parent / "tiny.gguf"


@pytest.fixture(scope="session")
def tiny_loras(tiny_model: Path) -> list[Path]:
    """Three adapters of the tiny model, in PEFT's format."""
    return [
        make_tiny_lora(tiny_model, tiny_model.parent / f"lora-{seed}", seed) for seed in range(3)
    ]


@pytest.fixture(scope="session")
def tiny_gguf_loras(tiny_model: Path, tiny_loras: list[Path]) -> list[Path]:
    """The same adapters for llama.cpp."""
    from loopline.trainers.export.gguf import export_gguf_adapter

    for folder in tiny_loras:
        export_gguf_adapter(folder, tiny_model, folder / "adapter.gguf")
    return tiny_loras


@pytest.fixture(scope="session")
def tiny_sentencepiece_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a trained tiny Llama with a SentencePiece-style tokenizer."""
    return make_tiny_sentencepiece_model(tmp_path_factory.mktemp("models") / "tiny-llama")
