"""Environment variables of a server that the worker starts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil
import pytest

from loopline.runtime.config import settings as config
from loopline.runtime.supervise.worker_environment import worker_environment
from loopline.testing.vllm_double import write_program
from loopline.workers.engines.local.model_text import read_text_files
from loopline.workers.engines.vllm.engine import VllmEngine
from loopline.workers.engines.vllm.managed import ManagedServer, server_environment
from tests.workers.engines.test_managed_vllm import managed, server_of

WORKERS = {
    "PATH": "/usr/bin", "HOME": "/home/me", "LANG": "C", "LC_ALL": "C", "CUDA_VISIBLE_DEVICES": "0",
    "NCCL_DEBUG": "WARN", "HF_HOME": "/models", "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}  # fmt: skip
SECRETS = {
    "OPENAI_API_KEY": "sk-1", "LOOPLINE_REDIS_URL": "redis://:secret@host", "FLEET_KEY": "k",
    "AWS_SECRET_ACCESS_KEY": "a", "GITHUB_TOKEN": "g", "VLLM_API_KEY": "v", "HF_TOKEN": "h",
    "https_proxy": "http://me:word@proxy", "DATABASE_URL": "postgres://me:word@host",
}  # fmt: skip


def test_a_server_receives_the_machine_s_variables_and_no_key() -> None:
    assert server_environment(WORKERS | SECRETS, from_hub=False) == WORKERS


def test_a_server_that_downloads_its_model_receives_the_hub_token_and_the_proxy() -> None:
    variables = server_environment(WORKERS | SECRETS, from_hub=True)
    assert set(variables) - set(WORKERS) == {"HF_TOKEN", "https_proxy"}


def test_variables_requested_by_name_are_passed() -> None:
    variables = server_environment(WORKERS | SECRETS, from_hub=False, keep=("FLEET_KEY",))
    assert set(variables) - set(WORKERS) == {"FLEET_KEY"}


def test_a_variable_that_a_server_keeps_reaches_its_worker() -> None:
    override = 'models.slm.vllm={"keep_environment": ["GITHUB_TOKEN"]}'
    settings = config.load("delegate", environ={}, overrides=["models.slm.engine=vllm", override])
    assert worker_environment(settings, "gpu", SECRETS)["GITHUB_TOKEN"] == "g"
    assert "GITHUB_TOKEN" not in worker_environment(settings, "role", SECRETS)


@pytest.mark.parametrize(("letters", "folder"), [(20, None), (90, "/tmp")])
async def test_a_long_temporary_folder_does_not_hold_the_server_s_sockets(
    letters: int, folder: str | None, tiny_model: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """vLLM exits at its start if the path of one of its Unix sockets is too long."""
    monkeypatch.setattr(tempfile, "tempdir", "/" + letters * "a")
    monkeypatch.delenv("VLLM_RPC_BASE_PATH", raising=False)
    settings = managed(tiny_model, write_program(tmp_path))
    server = ManagedServer(settings, tiny_model, read_text_files(tiny_model, settings))
    assert server.own_environment().get("VLLM_RPC_BASE_PATH") == folder


@pytest.mark.slow
async def test_a_running_server_has_no_key_of_its_worker(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    engine = VllmEngine(
        managed(tiny_model, write_program(tmp_path), environment={"VLLM_EXTRA": "mine"})
    )
    await engine.start()
    server = server_of(engine)
    guardian = server.parent()
    assert guardian is not None
    for process in (server, guardian):
        environment = process.environ()
        assert not set(SECRETS) & set(environment)
        assert environment["VLLM_EXTRA"] == "mine"
        assert environment["PATH"]
    await engine.close()
    assert not psutil.pid_exists(server.pid)
