"""Recovery: expired leases, due retries, overdue runs and dead consumers.

Every worker with a free slot sweeps, one at a time per stream (a short lock), at jittered
intervals. The scan's cursor is kept, so entries at the end of a long list are reached too. A worker
without a free slot takes no work that it could not start. If a lease has expired, it keeps its next
slots for the sweep, because under a backlog readers would fill them at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Protocol

import structlog

from loopline.bus import scripts, waits
from loopline.bus.bus import OVERDUE, Bus
from loopline.bus.connection import OUTAGE
from loopline.bus.keys import GROUP, Shard

log = structlog.get_logger("loopline.bus.recovery")

CONSUMER_LEASES = 4
"""Number of lease periods after which a silent consumer without deliveries counts as gone."""
SCAN_MOST, SCAN_LEAST = 5000, 1000
"""Pending entries checked in one sweep: about 3 µs of server time each. Each sweep checks a list of
normal length completely. On a very long list without an expired entry, each sweep checks half as
many as the last one, so a million idle entries don't keep the server busy."""


class ConsumerState(Protocol):
    """Consumer state that sweeping needs."""

    @property
    def bus(self) -> Bus: ...

    @property
    def name(self) -> str: ...

    @property
    def streams(self) -> tuple[str, ...]: ...

    @property
    def ends_runs(self) -> bool: ...

    @property
    def free(self) -> int:
        """Number of deliveries that the consumer can take now."""
        ...

    @property
    def draining(self) -> bool: ...

    def holding(self, key: str) -> list[tuple[str, int]]:
        """Entry and delivery count of each delivery in hand from a work stream."""
        ...

    def keep(self, places: int) -> None:
        """Leave this many slots to the next sweep, instead of reading new work into them."""
        ...

    def take(self, shard: Shard, stream: str, entry: str, body: bytes, count: int) -> None:
        """Start handling a delivery that this consumer now holds."""
        ...


class Sweeper:
    """Sweeps the streams of one consumer."""

    def __init__(self, consumer: ConsumerState) -> None:
        self._consumer = consumer
        self._bus = consumer.bus
        self._cursors: dict[str, bytes] = {}
        self._scan: dict[str, int] = {}
        settings = self._bus.settings
        self._silent_ms = int(
            1000 * max(CONSUMER_LEASES * settings.lease_seconds, 5 * settings.block_seconds)
        )
        self._next_reap = time.monotonic() + self._silent_ms / 1000

    async def run(self) -> None:
        settings = self._bus.settings
        failures = 0
        while True:
            await asyncio.sleep(settings.sweep_seconds * random.uniform(0.8, 1.2))
            try:
                late = 0
                for shard in self._bus.keys.all_shards():
                    for stream in self._consumer.streams:
                        late += await self._sweep(shard, stream)
                self._consumer.keep(late)
                if self._consumer.ends_runs:
                    await self._expire_waits()
                if time.monotonic() >= self._next_reap:
                    await self._reap()
                failures = 0
            except OUTAGE as error:
                self._consumer.keep(0)
                failures += 1
                if failures & (failures - 1) == 0:
                    log.warning("sweep failed", error=str(error), tries=failures)

    async def _sweep(self, shard: Shard, stream: str) -> int:
        """Sweep one stream; return the number of expired leases left because no slot was free."""
        if self._consumer.draining:
            return 0
        settings = self._bus.settings
        key = shard.work(stream)
        scan = self._scan.get(key, SCAN_MOST)
        reply = await scripts.call(
            self._bus.redis,
            "sweep",
            [key, shard.delayed(stream), shard.lock(stream), shard.active, shard.history],
            [GROUP, self._consumer.name, settings.lease_ms, self._consumer.free,
             self._cursors.get(key, b"0-0"), max(1, int(settings.sweep_seconds * 500)),
             int(settings.history), scan, self._bus.clock.now_ms(), int(self._consumer.ends_runs),
             *(part for holding in self._consumer.holding(key) for part in holding)],
        )  # fmt: skip
        if not reply:
            return 0
        if len(reply) == 1:
            # No lease or deadline expires while the time is in doubt.
            await self._bus.clock.measure(self._bus.redis, self._bus.keys)
            return 0
        cursor, promoted, deliveries, overdue, late = reply
        self._cursors[key] = cursor
        at_end = cursor == b"0-0"
        self._scan[key] = SCAN_MOST if deliveries or late or at_end else max(SCAN_LEAST, scan // 2)
        if promoted:
            log.debug("retries due", stream=stream, count=promoted)
        for entry, body, count in deliveries:
            self._bus.observer.lease_taken_over(stream)
            log.info("lease taken over", stream=stream, entry=entry.decode(), delivery=count)
            self._consumer.take(shard, stream, entry.decode(), body, int(count))
        for run_id in overdue if self._consumer.ends_runs else ():
            await self._bus.end_run(run_id.decode(), *OVERDUE, only_if_overdue=True)
        return late

    async def _expire_waits(self) -> None:
        for shard in self._bus.keys.all_shards():
            while (count := await waits.expire(self._bus, shard)) == waits.AT_ONCE:
                pass
            if count < 0:
                await self._bus.clock.measure(self._bus.redis, self._bus.keys)
            elif count:
                log.info("waits expired", count=count)

    async def _reap(self) -> None:
        self._next_reap = time.monotonic() + self._silent_ms / 2000
        for shard in self._bus.keys.all_shards():
            for stream in self._consumer.streams:
                gone = await scripts.call(
                    self._bus.redis, "reap", [shard.work(stream)], [GROUP, self._silent_ms, ""]
                )
                if gone:
                    log.info("dead consumers removed", stream=stream, count=gone)
