"""Real Redis servers and worker processes, for tests and benchmarks of code built on Loopline. They
start quickly, and a test can kill or pause them, or restart them on their data.

    with running_redis(folder / "redis") as server:
        bus = BusSettings(redis_url=server.url)
        async with running_workers([GpuWorkerSettings(bus=bus, models=models)], folder):
            ...

Nothing here is for a deployment, where the supervisor runs the server and the workers.
"""

from __future__ import annotations

from loopline.testing.redis_process import (
    Persistence,
    RedisProcess,
    installed_servers,
    running_redis,
)
from loopline.testing.worker_processes import (
    WORKER,
    end_workers,
    running_workers,
    start_worker,
    wait_until_ready,
    write_settings,
)

__all__ = [
    "WORKER",
    "Persistence",
    "RedisProcess",
    "end_workers",
    "installed_servers",
    "running_redis",
    "running_workers",
    "start_worker",
    "wait_until_ready",
    "write_settings",
]
