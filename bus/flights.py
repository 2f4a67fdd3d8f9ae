"""Deduplicate equal requests in flight across all workers: one is made, the others wait for its
answer (`flight.lua`).

The first caller leads as long as it renews its claim. Only callers that waited meanwhile get its
answer: this is not a cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum

import structlog

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.connection import OUTAGE, pause_before, retry_during_outage
from loopline.bus.tasks import end

log = structlog.get_logger("loopline.bus.flights")

LANDING_LIFE_MS = 60_000
"""Life of a landing in ms: longer than any waiting process needs to read it."""


class Landed(Enum):
    """Result of a flight."""

    ANSWERED = "answered"
    FAILED = "failed"
    """The leader's request failed: each caller makes its own request."""
    GONE = "gone"
    """The leader gave up the flight, or died: another caller leads."""


@dataclass(frozen=True, slots=True)
class Landing:
    kind: Landed
    answer: bytes = b""


GONE = Landing(Landed.GONE)


@dataclass(slots=True)
class Lead:
    """Claim of the caller that makes the request."""

    landing: Landing = GONE


@dataclass(frozen=True, slots=True)
class Seat:
    """A caller's role in a flight."""

    flight: str
    """Name of the request."""
    leader: str
    leads: bool
    """Whether this caller makes the request."""


@dataclass(slots=True)
class _Watch:
    """One connection that waits on behalf of all waiters of this process."""

    task: asyncio.Task[Landing]
    waiters: int = 0


class Flights:
    """Flights of one process."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._watches: dict[str, _Watch] = {}
        """Watches by leader."""

    async def board(self, flight: str) -> Seat:
        """Lead the flight, or join the one in progress. A caller that leads uses `leading`."""
        token = uuid.uuid4().hex
        leader = await retry_during_outage("flight", lambda: self._call("board", flight, token))
        return Seat(flight, leader, leader == token)

    @asynccontextmanager
    async def leading(self, seat: Seat) -> AsyncGenerator[Lead]:
        """Make the request within the block, and set its `landing`. If it is not set when the block
        ends, the waiting callers take over the flight. While Redis is unreachable, they wait for
        another lease period."""
        lead = Lead()
        renewing = asyncio.create_task(self._renew(seat))
        try:
            yield lead
        finally:
            await end([renewing])
            landing = [lead.landing.kind.value, lead.landing.answer, LANDING_LIFE_MS]
            try:
                await self._call("land", seat.flight, seat.leader, *landing)
            except OUTAGE as error:
                log.warning("waiting callers not notified", error=str(error))

    async def _renew(self, seat: Seat) -> None:
        while True:
            await asyncio.sleep(self._bus.settings.lease_seconds / 4)
            with suppress(*OUTAGE):
                await self._call("renew", seat.flight, seat.leader)

    async def landing(self, seat: Seat) -> Landing:
        """Result of a flight that another caller leads. Cancelling this affects no other waiter."""
        watch = self._watches.get(seat.leader)
        if watch is None:
            watch = _Watch(asyncio.create_task(self._watch(seat.flight, seat.leader)))
            self._watches[seat.leader] = watch
        watch.waiters += 1
        try:
            return await asyncio.shield(watch.task)
        finally:
            watch.waiters -= 1
            if watch.waiters == 0:
                self._watches.pop(seat.leader, None)
                watch.task.cancel()

    async def _watch(self, flight: str, leader: str) -> Landing:
        key = self._bus.keys.landing(leader)
        block = int(self._bus.settings.block_seconds * 1000)
        failures = 0
        while True:
            try:
                streams = await self._bus.blocking.xread({key: "0-0"}, count=1, block=block)
                if streams:
                    fields = streams[0][1][0][1]
                    return Landing(Landed(fields[b"kind"].decode()), fields[b"answer"])
                holder = await self._bus.redis.get(self._bus.keys.flight(flight))
                is_gone = holder is None or holder.decode() != leader
                # The flight may have landed between the two reads.
                if is_gone and not await self._bus.redis.exists(key):
                    return GONE
                failures = 0
            except OUTAGE:
                failures += 1
                await asyncio.sleep(pause_before(failures))

    async def _call(self, what: str, flight: str, token: str, *landing: scripts.Value) -> str:
        keys = [self._bus.keys.flight(flight), self._bus.keys.landing(token)]
        args: list[scripts.Value] = [what, token, self._bus.settings.lease_ms, *landing]
        leader = await scripts.call(self._bus.redis, "flight", keys, args)
        return leader.decode()


def flight_name(*parts: bytes) -> str:
    """Name of a flight: a digest of the request and its recipient."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]
