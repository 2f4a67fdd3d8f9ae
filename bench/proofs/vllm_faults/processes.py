"""The servers and gpu workers of `bench vllm-faults`: real processes, killed and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from loopline.bench.errors import BenchError
from loopline.bench.proofs.time_limit import time_limit
from loopline.bus import BusSettings
from loopline.testing import end_workers, start_worker, wait_until_ready
from loopline.workers.engines.settings import ModelSettings, VllmSettings
from loopline.workers.process_lifetime import dies_with_parent
from loopline.workers.settings import GpuWorkerSettings

POOL = "slm"
START_SECONDS = 300.0
_GROUP_ENDS = 5.0
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
}  # fmt: skip


@dataclass
class Processes:
    """Create processes; `python` is vLLM's interpreter, or the program of its double."""

    python: Path
    model: Path
    bus: BusSettings
    folder: Path
    ports: list[int]
    concurrency: int
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])
    kills: dict[str, int] = field(default_factory=lambda: {"server": 0, "worker": 0})

    async def start(self) -> None:
        """Start the servers, then two workers that share them. Raises `BenchError` if one does not
        start."""
        self.servers = [self._server(place) for place in range(len(self.ports))]
        for place in range(len(self.ports)):
            await self._wait_until_up(place)
        settings = [self._worker(place) for place in range(2)]
        self.workers = [start_worker(worker, self.folder) for worker in settings]
        # A server on a busy CPU is slow with its first answers, which the workers use to check it.
        await wait_until_ready(settings, self.workers, self.folder, START_SECONDS)

    async def kill_server(self, place: int) -> None:
        """Kill all processes of a server with SIGKILL; return when a new one answers at its
        address."""
        self.kills["server"] += 1
        await asyncio.to_thread(self._end_group, self.servers[place])
        self.servers[place] = self._server(place)
        await self._wait_until_up(place)

    async def kill_worker(self, place: int) -> None:
        """Kill a worker with SIGKILL; return when another is ready."""
        self.kills["worker"] += 1
        process = self.workers[place]
        process.kill()
        await asyncio.to_thread(process.wait)
        settings = self._worker(place)
        self.workers[place] = start_worker(settings, self.folder)
        await wait_until_ready([settings], [self.workers[place]], self.folder, START_SECONDS)

    def end(self) -> None:
        end_workers(self.workers)
        for server in self.servers:
            self._end_group(server)

    def _end_group(self, server: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait(_GROUP_ENDS)

    def _server(self, place: int) -> subprocess.Popen[bytes]:
        command = [
            str(self.python), "-m", "vllm.entrypoints.cli.main", "serve", str(self.model),
            "--host", "127.0.0.1", "--port", str(self.ports[place]), "--dtype", "float32",
            "--enforce-eager", "--enable-lora", "--max-loras", "4", "--max-lora-rank", "32",
            "--logprobs-mode", "processed_logprobs", "--max-num-seqs", str(self.concurrency),
        ]  # fmt: skip
        with (self.folder / f"server-{place}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **ENVIRONMENT},
                start_new_session=True,
                preexec_fn=dies_with_parent(signal.SIGKILL),
            )

    async def _wait_until_up(self, place: int) -> None:
        log = self.folder / f"server-{place}.log"
        late = f"a vLLM server did not become healthy ({log})"
        async with httpx.AsyncClient(trust_env=False) as client, time_limit(START_SECONDS, late):
            while True:
                if self.servers[place].poll() is not None:
                    last = log.read_text(errors="replace")[-1000:]
                    raise BenchError(f"a vLLM server does not start: {last}")
                try:
                    url = f"http://127.0.0.1:{self.ports[place]}/health"
                    if (await client.get(url)).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.1)

    def _worker(self, place: int) -> GpuWorkerSettings:
        first, *others = [f"http://127.0.0.1:{port}/v1" for port in self.ports]
        model = ModelSettings(
            engine="vllm",
            model=str(self.model),
            base_url=first,
            vllm=VllmSettings(servers=tuple(others), plain_check=False),
            max_concurrency=self.concurrency,
            backoff_seconds=0.1,
        )
        return GpuWorkerSettings(bus=self.bus, name=f"gpu-{place}", models={POOL: model})
