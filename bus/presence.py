"""Presence of workers: each announces itself every two seconds and whenever it has news. The
announcement expires after three beats."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loopline.bus.bus import Bus
from loopline.bus.connection import OUTAGE
from loopline.bus.keys import STREAM_LIFE_MS

log = structlog.get_logger("loopline.bus.presence")

MAX_SHOWN = 300
"""Maximum number of characters of the error shown for an unreadable announcement."""
BEAT = 2.0
"""Seconds between two beats."""


class WorkerPresence(BaseModel):
    """One worker's description of itself."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    kind: str
    host: str = Field(default_factory=socket.gethostname)
    pid: int = Field(default_factory=os.getpid)
    version: str = ""
    build: str = ""
    """The version, and the commit that the worker's program was built from."""
    started: float = 0.0
    """Start time in Unix seconds by the bus's clock; the time of the first announcement if not
    specified."""
    state: str = "starting"
    """`starting`, `ready` or `draining`."""
    busy: int = 0
    concurrency: int = 0
    streams: list[str] = Field(default_factory=list)
    details: dict[str, Any] = Field(default_factory=dict)
    """Details of this kind of worker (models, engine totals, rows written)."""
    beat: float = 0.0
    """Time of the last announcement, in Unix seconds by the bus's clock."""
    skew: float = 0.0
    """Seconds that the worker machine's wall clock is ahead of the bus's clock."""


async def announce(
    bus: Bus, describe: Callable[[], WorkerPresence], news: asyncio.Event | None = None
) -> None:
    """Send beats until cancelled; then withdraw the announcement. When `news` is set, send one at
    once: others may be waiting for it."""
    news = news or asyncio.Event()
    failing = False
    name, started = describe().name, bus.clock.now()
    try:
        while True:
            news.clear()
            try:
                presence = describe()
                if not presence.started:
                    presence = presence.model_copy(update={"started": started})
                await beat(bus, presence)
                failing = False
            except OUTAGE as error:
                if not failing:
                    log.warning("presence not announced", error=str(error))
                failing = True
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), BEAT)
    finally:
        try:
            await bus.redis.delete(bus.keys.worker(name))
            await bus.redis.zrem(bus.keys.workers, name)
        except OUTAGE as error:
            log.warning("presence not withdrawn; it expires by itself", error=str(error))


async def beat(bus: Bus, presence: WorkerPresence) -> None:
    """Announce this worker once."""
    now = bus.clock.now()
    update = {"beat": now, "skew": round(bus.clock.skew, 3)}
    body = presence.model_copy(update=update).model_dump_json()
    async with bus.redis.pipeline(transaction=True) as pipe:
        pipe.set(bus.keys.worker(presence.name), body, px=int(3 * BEAT * 1000))
        pipe.zadd(bus.keys.workers, {presence.name: now})
        pipe.zremrangebyscore(bus.keys.workers, "-inf", now - 3600)
        pipe.pexpire(bus.keys.workers, STREAM_LIFE_MS)
        await pipe.execute()


async def live_workers(bus: Bus) -> list[WorkerPresence]:
    """The workers that are present now, by kind and name. Skips entries that are not
    announcements."""
    names = [
        name.decode("utf-8", "backslashreplace")
        for name in await bus.redis.zrange(bus.keys.workers, 0, -1)
    ]
    if not names:
        return []
    bodies = await bus.redis.mget([bus.keys.worker(name) for name in names])
    workers = [worker for body in bodies if body and (worker := _read(body))]
    # The server's clock may have gone back and extended the announcement's life.
    now = bus.clock.now()
    workers = [worker for worker in workers if abs(now - worker.beat) <= 3 * BEAT + 1]
    return sorted(workers, key=lambda worker: (worker.kind, worker.name))


def _read(body: bytes) -> WorkerPresence | None:
    try:
        return WorkerPresence.model_validate_json(body)
    except ValidationError as error:
        log.warning("a worker's presence can't be read", error=str(error)[:MAX_SHOWN])
        return None
