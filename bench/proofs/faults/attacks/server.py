"""Attacks on Redis itself."""

from __future__ import annotations

import asyncio

from loopline.bench.proofs.faults.attacks.base import Attack, interpolate

DOWN_SECONDS = (0.0, 1.0)
FROZEN_LEASES = (0.1, 1.5)
"""Least and most duration of a freeze, in leases."""
FULL_SECONDS = (0.2, 2.0)


class RestartRedis(Attack):
    name, weight, about = "redis", 15, "Redis is killed with SIGKILL and started on its file"

    async def inject(self, place: float, hardness: float) -> None:
        server = self.scene.server
        server.kill()
        await asyncio.sleep(interpolate(DOWN_SECONDS, hardness))
        await asyncio.to_thread(server.start)


class FreezeRedis(Attack):
    name, weight, about = "redis_stop", 10, "SIGSTOP of Redis: it accepts, but answers nothing"

    async def inject(self, place: float, hardness: float) -> None:
        server = self.scene.server
        server.pause()
        await asyncio.sleep(self.scene.lease_seconds * interpolate(FROZEN_LEASES, hardness))
        server.resume()


class Memory(Attack):
    name, weight, about = "memory", 8, "Redis is out of memory (maxmemory) and refuses to write"

    async def inject(self, place: float, hardness: float) -> None:
        server = self.scene.server
        await asyncio.to_thread(server.configure, "maxmemory", "1")
        await asyncio.sleep(interpolate(FULL_SECONDS, hardness))
        await asyncio.to_thread(server.configure, "maxmemory", "0")


class Disk(Attack):
    name, weight, about = "disk", 5, "the disk of Redis's append-only file is full"
    needs = "disk"

    async def inject(self, place: float, hardness: float) -> None:
        disk, server = self.scene.disk, self.scene.server
        assert disk is not None
        await asyncio.to_thread(disk.fill)
        await asyncio.sleep(interpolate(FULL_SECONDS, hardness))
        await asyncio.to_thread(disk.free)
        # With `appendfsync always` Redis exits rather than acknowledge data that is not on disk.
        await asyncio.to_thread(server.wait_for_writes)
