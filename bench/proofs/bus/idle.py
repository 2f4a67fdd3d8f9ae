"""Cost of a bus while nothing happens: an idle worker, and a sweep over a long pending list."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import psutil
from redis.asyncio import Redis

from loopline.bench.errors import BenchError
from loopline.bus import BusSettings, Keys
from loopline.testing import RedisProcess, running_workers
from loopline.workers.messages import role_stream
from loopline.workers.settings import RoleWorkerSettings

IDLE_SECONDS = 10.0
SWEEP_SECONDS = 15.0
ROLE = "planner"
LONG_LEASE = 3600.0
"""Seconds of a lease that outlasts the measurement: no entry of the long list expires meanwhile."""
_FILL = 5000


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor time, in per cent of one core."""

    worker: float
    server: float
    seconds: float

    @property
    def both(self) -> float:
        return self.worker + self.server


async def idle_worker(server: RedisProcess) -> Cost:
    """Measure a role worker with nothing to do: reads, sweeps, lease thread, presence."""
    server.flush()
    return await _cost(server, BusSettings(redis_url=server.url), IDLE_SECONDS)


async def sweep(server: RedisProcess, entries: int) -> Cost:
    """Measure the same worker while its stream has `entries` pending entries of another
    consumer."""
    server.flush()
    settings = BusSettings(redis_url=server.url, lease_seconds=LONG_LEASE)
    await _fill(server.url, _stream(settings), entries)
    cost = await _cost(server, settings, SWEEP_SECONDS)
    if (pending := await _pending(server.url, _stream(settings))) != {"busy": entries}:
        raise BenchError(f"the sweeper took entries whose leases had not ended: {pending}")
    server.flush()
    return cost


def _stream(settings: BusSettings) -> str:
    return Keys(settings.prefix, settings.shards).shard(0).work(role_stream(ROLE))


async def _fill(url: str, stream: str, entries: int) -> None:
    client = Redis.from_url(url)
    await client.xgroup_create(stream, "workers", id="0", mkstream=True)
    for start in range(0, entries, _FILL):
        size = min(_FILL, entries - start)
        async with client.pipeline(transaction=False) as pipe:
            for _ in range(size):
                pipe.xadd(stream, {"e": b"{}"})
            await pipe.execute()
        await client.xreadgroup("workers", "busy", {stream: ">"}, count=size)
    await client.aclose()


async def _pending(url: str, stream: str) -> dict[str, int]:
    """Pending messages by consumer."""
    async with Redis.from_url(url) as client:
        consumers = (await client.xpending(stream, "workers"))["consumers"]
    return {consumer["name"].decode(): consumer["pending"] for consumer in consumers}


async def _cost(server: RedisProcess, settings: BusSettings, seconds: float) -> Cost:
    idle = RoleWorkerSettings(bus=settings, roles=(ROLE,))
    async with running_workers([idle], server.folder / "workers") as (started,):
        process = psutil.Process(started.pid)
        await asyncio.sleep(1.0)  # one-time work at the start is not part of the measurement
        began, worker_cpu, server_cpu = time.monotonic(), _cpu(process), server.cpu_seconds()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        return Cost(
            worker=100 * (_cpu(process) - worker_cpu) / took,
            server=100 * (server.cpu_seconds() - server_cpu) / took,
            seconds=took,
        )


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
