"""A gpu worker whose model cannot be used: one error that names the file and what to do, and an
exit code that keeps the supervisor from restarting it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from loopline.runtime.errors import EXIT_CONFIG
from loopline.testing import RedisProcess
from tests.runtime.conftest import Deployment

pytestmark = pytest.mark.timeout(200)


def missing(folder: Path) -> Path:
    return folder / "nowhere"


def pickled(folder: Path) -> Path:
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    return folder


def cut_gguf(folder: Path) -> Path:
    file = folder / "cut.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 40, 12))
    return file


@pytest.mark.parametrize(
    ("engine", "model", "says"),
    [
        ("torch", missing, "nowhere' cannot be loaded: there is no such folder"),
        ("torch", pickled, "in pickle format (pytorch_model.bin), which can run any code"),
        ("llama_cpp", cut_gguf, "its header is damaged at byte 24: 8 bytes should follow"),
    ],
)
def test_a_model_that_cannot_be_loaded_ends_a_worker_with_one_error(
    deployment: Deployment,
    any_server: RedisProcess,
    tmp_path: Path,
    engine: str,
    model: Callable[[Path], Path],
    says: str,
) -> None:
    if engine == "llama_cpp":
        pytest.importorskip("llama_cpp", reason="needs make gguf")
    options = (
        *("--profile", "scripted", "--set", f"models.llm.engine={engine}"),
        *("--set", f"models.llm.model={model(tmp_path)}"),
    )
    process = deployment.run("worker", "gpu", "--redis-url", any_server.url, *options)
    assert process.returncode == EXIT_CONFIG
    assert process.stderr.count("error: ") == 1
    assert says in process.stderr
    assert f"`runtime doctor {' '.join(options)}` checks models and keys" in process.stderr
    assert "Traceback" not in process.stdout + process.stderr
