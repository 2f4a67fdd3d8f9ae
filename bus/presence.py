"""Presence of workers: each announces itself every two seconds and when it has news, and its
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
"""Most characters of what is wrong with an unreadable announcement."""
BEAT = 2.0
"""Seconds between two beats."""


class WorkerPresence(BaseModel):
    """One worker as it describes itself."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    kind: str
    host: str = Field(default_factory=socket.gethostname)
    pid: int = Field(default_factory=os.getpid)
    version: str = ""
    build: str = ""
    """The version, and the commit that its program was made from."""
    started: float = 0.0
    """Time of its start, in Unix seconds by the bus's clock; that of its first announcement, if not
    given."""
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
    """Seconds that the wall clock of its machine is ahead of the bus's."""


async def announce(
    bus: Bus, describe: Callable[[], WorkerPresence], news: asyncio.Event | None = None
) -> None:
    """Beat until cancelled; then withdraw the announcement. When `news` is set, beat at once:
    others may be waiting for it."""
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
            log.warning("presence not withdrawn; it fades by itself", error=str(error))


async def beat(bus: Bus, presence: WorkerPresence) -> None:
    """Announce once that this worker is there."""
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
    """The workers that are present now, by kind and name. Entries that are not announcements are
    skipped."""
    names = [
        name.decode("utf-8", "backslashreplace")
        for name in await bus.redis.zrange(bus.keys.workers, 0, -1)
    ]
    if not names:
        return []
    bodies = await bus.redis.mget([bus.keys.worker(name) for name in names])
    workers = [worker for body in bodies if body and (worker := _read(body))]
    # The server's clock may have gone back, and prolonged the life of the announcement.
    now = bus.clock.now()
    workers = [worker for worker in workers if abs(now - worker.beat) <= 3 * BEAT + 1]
    return sorted(workers, key=lambda worker: (worker.kind, worker.name))


def _read(body: bytes) -> WorkerPresence | None:
    try:
        return WorkerPresence.model_validate_json(body)
    except ValidationError as error:
        log.warning("a worker's word can't be read", error=str(error)[:MAX_SHOWN])
        return None
