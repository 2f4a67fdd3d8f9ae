"""Real Redis servers and real worker processes, for tests and measurements of what stands on
Loopline: started in a moment, killed, paused, started again on their data.

    with running_redis(folder / "redis") as server:
        bus = BusSettings(redis_url=server.url)
        async with running_workers([GpuWorkerSettings(bus=bus, models=models)], folder):
            ...

Nothing here is for a deployment: that one's server and workers are the supervisor's.
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
