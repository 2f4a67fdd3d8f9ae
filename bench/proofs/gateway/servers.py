"""The compared servers: the scripted endpoint, the gateway on it, and LiteLLM's proxy on it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from loopline.bench.errors import BenchError
from loopline.bench.proofs.gateway.load import Target
from loopline.bench.proofs.gateway_process import api_key, gateway_in
from loopline.bus import BusSettings
from loopline.testing import end_workers, running_redis, start_worker, wait_until_ready
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import dies_with_parent
from loopline.workers.settings import (
    GpuWorkerSettings,
    RecorderSettings,
    RoleWorkerSettings,
    TracingSettings,
)

DIRECT, OURS, LITELLM = "endpoint alone", "loopline", "litellm"
MODEL, SLOW = "llm", "slm"
SLOW_SECONDS = 120.0
"""Seconds until the first token of the model whose streams stay open."""
LITELLM_FOLDER = Path(sys.prefix) / "litellm"
"""Environment built by `make .venv/litellm`: the proxy needs other package versions than we do."""
START_SECONDS = 400.0
"""Seconds until a server must be ready: LiteLLM's proxy needs 18 s of CPU time, which takes minutes
on a busy machine."""


@dataclass(frozen=True)
class Served:
    """A target and its processes, the front one first."""

    target: Target
    processes: list[psutil.Process]

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds so far of all its processes, without the endpoint."""
        return sum(map(_cpu_seconds, self.processes))

    @property
    def front_seconds(self) -> float:
        """CPU seconds so far of the front process."""
        return _cpu_seconds(self.processes[0])


def _cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds of a process, in nanoseconds if Linux counts them: ticks of 10 ms are too coarse
    for a difference of a few per cent."""
    try:
        threads = Path(f"/proc/{process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except (OSError, ValueError, IndexError):
        times = process.cpu_times()
        return times.user + times.system


@contextmanager
def endpoint(latency: float) -> Generator[str]:
    """Yield the base URL of a scripted server in a separate process."""
    command = [*OWN_PYTHON, "-m", "loopline.workers.scripted_api", "--latency", str(latency)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, preexec_fn=dies_with_parent(signal.SIGKILL)
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise BenchError("the scripted endpoint exited; its output is above")
            yield json.loads(line)["url"]
        finally:
            process.kill()


@contextmanager
def gateway(
    folder: Path, url: str, slow_url: str, tracing: TracingSettings | None = None
) -> Generator[Served]:
    """Yield a deployment of one gateway, one gpu worker and one recorder."""
    tracing = tracing or TracingSettings()
    models = {
        name: ModelSettings.model_validate(
            {"engine": "openai", "model": name, "base_url": base, "max_concurrency": 1024}
        )
        for name, base in ((MODEL, url), (SLOW, slow_url))
    }
    with running_redis(folder / "redis", persistence="everysec", listen="unix") as server:
        bus = BusSettings(redis_url=server.url)
        front = gateway_in(folder, "gateway", models, tracing, run_seconds=600.0)
        key = api_key(folder)
        roles = RoleWorkerSettings(
            bus=bus, name="gateway", roles=("chat",), concurrency=1024, models=models
        )
        gpu = GpuWorkerSettings(bus=bus, name="gpu", models=models, concurrency=1024)
        recorder = RecorderSettings(
            bus=bus, name="recorder", store=folder / "store", tracing=tracing
        )
        workers = [
            start_worker(roles, folder, front.command),
            start_worker(gpu, folder),
            start_worker(recorder, folder),
        ]
        try:
            asyncio.run(wait_until_ready([roles, gpu, recorder], workers, folder))
            processes = [psutil.Process(worker.pid) for worker in workers]
            target = Target(OURS, front.url, key, MODEL)
            yield Served(target, [*processes, psutil.Process(server.pid)])
        finally:
            end_workers(workers)


def why_no_litellm() -> str:
    """Reason why its row is omitted; empty if it can be measured."""
    if (LITELLM_FOLDER / "litellm").is_dir():
        return ""
    return "LiteLLM's proxy is not installed: make .venv/litellm"


@contextmanager
def litellm(folder: Path, url: str) -> Generator[Served]:
    """Yield LiteLLM's proxy in one process, with its defaults: it logs no request."""
    config = folder / "litellm.yaml"
    config.write_text(
        f"model_list:\n- model_name: {MODEL}\n  litellm_params:\n    model: openai/{MODEL}\n"
        f"    api_base: {url}\n    api_key: none\n"
        "litellm_settings:\n  telemetry: false\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    key = f"sk-{secrets.token_hex(16)}"
    command = [
        sys.executable, "-c", "from litellm.proxy.proxy_cli import run_server; run_server()",
        "--config", str(config), "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    environment = {
        **os.environ, "PYTHONPATH": str(LITELLM_FOLDER), "LITELLM_MASTER_KEY": key,
        "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }  # fmt: skip
    log = folder / "litellm.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=environment,
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )  # fmt: skip
    try:
        _wait_for_port(process, port, log)
        target = Target(LITELLM, f"http://127.0.0.1:{port}/v1", key, MODEL)
        yield Served(target, [psutil.Process(process.pid)])
    finally:
        process.kill()
        process.wait()


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                last = log.read_text(errors="replace")[-500:]
                raise BenchError(f"LiteLLM's proxy did not start: {last}") from None
            time.sleep(0.1)
