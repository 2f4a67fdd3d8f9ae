"""A gateway with its workers, and the same application in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp

from loopline.bench.proofs.gateway_process import api_key, gateway_in, state_of
from loopline.bus import Bus, BusSettings
from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import load
from loopline.runtime.gateway import api_keys
from loopline.runtime.gateway.app import gateway_app
from loopline.runtime.gateway.service import Service
from loopline.testing import end_workers, running_redis, start_worker, wait_until_ready
from loopline.workers.settings import GpuWorkerSettings, RecorderSettings, RoleWorkerSettings

RUN_SECONDS = 5.0
RETENTION_SECONDS = 8.0
"""Seconds that ended runs are kept: a million of them would fill the memory."""
SHORT_SECONDS = 1.0
"""Seconds that the gateway waits for headers, bodies and next requests that do not arrive."""
TEAM_ROLES = ("solo", "planner", "expert", "slm", "agent", "completion")


@dataclass(frozen=True)
class Running:
    """The attacked deployment."""

    app: ASGIApp
    bus: Bus
    url: str
    keys: Sequence[str]
    """Keys of two callers."""
    gateway_pid: int


@asynccontextmanager
async def running(folder: Path) -> AsyncGenerator[Running]:
    """Run the deployment until the end of the block. Raises `UserError` for workers that don't
    start."""
    with running_redis(folder / "redis", listen="unix") as server:
        bus = BusSettings(
            redis_url=server.url, retention_seconds=RETENTION_SECONDS, sweep_seconds=0.1
        )
        models = load("scripted", environ={}).models
        front = gateway_in(
            folder, "gateway", models, run_seconds=RUN_SECONDS,
            header_seconds=SHORT_SECONDS, body_seconds=SHORT_SECONDS,
            keepalive_seconds=SHORT_SECONDS,
        )  # fmt: skip
        workers = [
            RoleWorkerSettings(bus=bus, name="gateway", roles=("chat",), concurrency=256),
            RoleWorkerSettings(bus=bus, name="team", roles=TEAM_ROLES, concurrency=64),
            GpuWorkerSettings(bus=bus, name="gpu", models=models, concurrency=256),
            RecorderSettings(bus=bus, name="recorder", store=folder / "store"),
        ]
        processes = [
            start_worker(workers[0], folder, front.command),
            *(start_worker(settings, folder) for settings in workers[1:]),
        ]
        try:
            await wait_until_ready(workers, processes, folder)
            async with Client.connect(bus) as client:
                other = api_keys.new_key()
                record = api_keys.ApiKey(
                    id=api_keys.digest(other)[:12], name="other", created=client.bus.clock.now(),
                    models=("slm*", "workflow/*"), tokens_per_day=10**12,
                )  # fmt: skip
                await api_keys.add(client.bus, other, record)
                service = Service(client, front.settings)
                yield Running(
                    gateway_app(service, state_of(folder)), client.bus, front.url,
                    (api_key(folder), other), processes[0].pid,
                )  # fmt: skip
        finally:
            await asyncio.to_thread(end_workers, processes)
