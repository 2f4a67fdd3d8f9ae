"""Read a stream that several groups read: trajectories, the usage ledger, rewards.

A group reads a batch, makes it durable, and only then acknowledges it. Only entries that every
group has acknowledged are trimmed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence

import structlog
from redis.exceptions import TimeoutError as RedisTimeoutError

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.connection import OUTAGE, pause_before, retry_during_outage
from loopline.bus.keys import STREAM_LIFE_MS

log = structlog.get_logger("loopline.bus.log_consumer")

Entry = tuple[str, dict[bytes, bytes]]
BatchHandler = Callable[[Sequence[Entry]], Awaitable[None]]


class LogConsumer:
    """Hands batches of one stream to a handler that makes them durable.

    Delivery is at least once: a batch that was handled but not acknowledged is delivered again, so
    the handler must recognize it by entry id. If the handler raises, nothing is acknowledged and
    the batch is delivered again after a pause. A batch that is not full waits `linger` seconds for
    more entries.
    """

    def __init__(
        self,
        bus: Bus,
        key: str,
        group: str,
        handler: BatchHandler,
        *,
        batch: int = 200,
        linger: float = 0.0,
        logs_itself: tuple[type[Exception], ...] = (),
    ) -> None:
        """`logs_itself`: errors that the handler logs itself when it raises them."""
        self.bus = bus
        self.key = key
        self.group = group
        self.name = f"{group}-{uuid.uuid4().hex[:8]}"
        self._handler = handler
        self._batch = batch
        self._count = batch
        """Entries of the next read. If this many don't arrive within a connection's timeout, they
        never will: fewer are requested, then slowly more again."""
        self._linger = linger
        self._logs_itself = logs_itself
        self._draining = asyncio.Event()
        settings = bus.settings
        self._silent = max(4 * settings.lease_seconds, 5 * settings.block_seconds)
        """Seconds after which a reader of the group without pending entries counts as gone."""
        self._next_reap = time.monotonic() + self._silent
        self._jumps = -1
        """Number of the server clock's jumps when the group's leases were last restarted."""

    def drain(self) -> None:
        self._draining.set()

    async def run(self) -> None:
        """Serve until drained, which includes entries already on the stream."""
        await retry_during_outage("group create", self._create_group)
        failures = 0
        while True:
            try:
                entries = await self._next_batch()
                if entries:
                    await self._handler(entries)
                    await self._acknowledge(entries)
                    self._count = min(self._batch, self._count + 1 + self._count // 8)
                elif time.monotonic() >= self._next_reap:
                    await self._reap()
                elif self._draining.is_set():
                    break
                failures = 0
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - disk full, Redis away: keep the batch, wait
                failures += 1
                if isinstance(error, RedisTimeoutError):
                    self._count = max(1, self._count // 2)
                logged = isinstance(error, self._logs_itself)
                if failures & (failures - 1) == 0 and not logged:
                    log.error(
                        "batch kept on the bus", stream=self.key, error=str(error),
                        kind=type(error).__name__, tries=failures,
                    )  # fmt: skip
                if "NOGROUP" in str(error):
                    await retry_during_outage("group create", self._create_group)
                if self._draining.is_set() and failures > 3:
                    log.error("drained with entries left on the bus", stream=self.key)
                    break
                await asyncio.sleep(pause_before(failures))
        await self._leave()

    async def _create_group(self) -> None:
        await scripts.call(self.bus.redis, "group", [self.key], [self.group])

    async def _next_batch(self) -> list[Entry]:
        # Also for a stream that receives no writes while its batches can't be made durable.
        await self.bus.redis.pexpire(self.key, STREAM_LIFE_MS)
        # Own unacknowledged entries first (a failed batch), then those of dead readers.
        reply = await self.bus.redis.xreadgroup(
            self.group, self.name, {self.key: "0"}, count=self._count
        )
        entries = reply[0][1] if reply else []
        if self._jumps != (jumps := self.bus.clock.jumps):
            await scripts.call(self.bus.redis, "rebase", [self.key], [self.group])
            self._jumps = jumps
        if not entries:
            _, entries, _ = await self.bus.redis.xautoclaim(
                self.key, self.group, self.name, self.bus.settings.lease_ms, "0-0",
                count=self._count,
            )  # fmt: skip
        if not entries:
            block = 1 if self._draining.is_set() else int(self.bus.settings.block_seconds * 1000)
            new = await self.bus.blocking.xreadgroup(
                self.group, self.name, {self.key: ">"}, count=self._count, block=block
            )
            entries = new[0][1] if new else []
            if entries and len(entries) < self._count and self._linger:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._linger):
                        await self._draining.wait()
                more = await self.bus.redis.xreadgroup(
                    self.group, self.name, {self.key: ">"}, count=self._count - len(entries)
                )
                entries += more[0][1] if more else []
        gone = [entry for entry, fields in entries if not fields]
        if gone:
            # Another client deleted the entry while it was pending: it would be delivered forever,
            # and new entries never.
            log.error(
                "entries were deleted before they were read", stream=self.key, count=len(gone)
            )
            await self.bus.redis.xack(self.key, self.group, *gone)
        return [(entry.decode(), fields) for entry, fields in entries if fields]

    async def _acknowledge(self, entries: Sequence[Entry]) -> None:
        async def acknowledge() -> None:
            await self.bus.redis.xack(self.key, self.group, *(entry for entry, _ in entries))
            await scripts.call(self.bus.redis, "trim", [self.key], [])

        await retry_during_outage("acknowledge", acknowledge)

    async def _reap(self) -> None:
        self._next_reap = time.monotonic() + self._silent / 2
        args: list[scripts.Value] = [self.group, int(self._silent * 1000), ""]
        gone = await scripts.call(self.bus.redis, "reap", [self.key], args)
        if gone:
            log.info("dead readers removed", stream=self.key, count=gone)

    async def _leave(self) -> None:
        try:
            await scripts.call(self.bus.redis, "reap", [self.key], [self.group, 0, self.name])
        except OUTAGE as error:
            log.warning("consumer name not removed", consumer=self.name, error=str(error))
