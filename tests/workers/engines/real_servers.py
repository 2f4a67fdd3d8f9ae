"""Third-party servers in separate processes for the openai engine's tests: each starts with the
first test that needs it, and serves all of them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.managed import PYTHON_VARIABLE, find_python

START_SECONDS = 400.0
"""LiteLLM's proxy needs 18 s of CPU to start, which is minutes on a busy machine."""
LITELLM_FOLDER = Path(sys.prefix) / "litellm"
"""`make .venv/litellm`: the proxy needs other versions than ours of packages that it does not use
here."""
LITELLM_KEY = "sk-local-0123456789abcdef0123456789abcdef"


@dataclass
class RealServer:
    url: str
    process: subprocess.Popen[bytes]
    log: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def require(*modules: str, remedy: str) -> None:
    """Skip the test if a package is missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: {remedy}")


@contextlib.contextmanager
def running(
    command: list[str], port: int, log: Path, *, health: str, **environment: str
) -> Generator[RealServer]:
    """Return the server once it answers; fail with the end of its log if it does not."""
    base = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **environment},
            start_new_session=True,
        )  # fmt: skip
    try:
        until = time.monotonic() + START_SECONDS
        while not _answers(base + health):
            if process.poll() is not None or time.monotonic() > until:
                pytest.fail(f"{command[0]} does not serve: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield RealServer(f"{base}/v1", process, log)
    finally:
        # The whole group: a server's children outlive it, even if a test has killed it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=2).status_code < 500
    except httpx.TransportError:
        return False


def llama_cpp_command(gguf: Path, port: int) -> list[str]:
    return [
        sys.executable, "-m", "llama_cpp.server", "--model", str(gguf), "--host", "127.0.0.1",
        "--port", str(port), "--n_ctx", "512", "--n_threads", "1", "--logits_all", "true",
        "--interrupt_requests", "false",
    ]  # fmt: skip


def transformers_command(model: Path, port: int) -> list[str]:
    return [
        sys.executable, "-c", "from transformers.cli.transformers import main; main()",
        "serve", str(model), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu",
    ]  # fmt: skip


def litellm_command(config: Path, port: int) -> list[str]:
    return [
        sys.executable, "-c", "from litellm.proxy.proxy_cli import run_server; run_server()",
        "--config", str(config), "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip


def scripted_command(port: int) -> list[str]:
    return [
        sys.executable, "-m", "loopline.workers.scripted_api", "--port", str(port),
        "--max-context", "2048",
    ]  # fmt: skip


VLLM_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}  # fmt: skip


def vllm_python() -> str:
    """Return the interpreter of an environment with vLLM, or skip the test if there is none."""
    python = find_python(ModelSettings(engine="vllm", model="any"))
    if not python.is_file():
        pytest.skip(f"no vLLM on this machine: make vllm, or set {PYTHON_VARIABLE}")
    return str(python)


def vllm_command(model: Path, port: int) -> list[str]:
    return [
        vllm_python(), "-m", "vllm.entrypoints.cli.main", "serve", str(model),
        "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager",
        "--enable-lora", "--max-loras", "4", "--max-lora-rank", "8",
        "--logprobs-mode", "processed_logprobs", "--enable-prompt-tokens-details",
        "--structured-outputs-config", '{"backend":"guidance","disable_any_whitespace":true}',
    ]  # fmt: skip
