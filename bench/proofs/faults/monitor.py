"""Watches an attacked deployment: ready workers, committed steps, keys without a TTL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from loopline.bench.proofs.faults.collection import (
    find_keys_without_ttl,
    log_keys,
    stream_states,
    work_keys,
)
from loopline.bench.proofs.faults.fleet import Fleet
from loopline.bus import OUTAGE, Bus, live_workers

LOOK_SECONDS = 0.25
REST_SECONDS = 120.0
_LOOKS_PER_SCAN = 8


class Monitor:
    """State at the last check, and totals since the attack began."""

    def __init__(self, fleet: Fleet, work: Sequence[str]) -> None:
        """Create a monitor; `work`: names of the streams that the fleet serves."""
        self.ready: frozenset[str] = frozenset()
        """Names of ready workers."""
        self.commits = 0
        """Steps committed."""
        self.keys_without_ttl: set[str] = set()
        """Keys that were ever seen without an expiry."""
        self.died: list[str] = []
        """Workers that ended without an injected fault."""
        self._fleet = fleet
        self._work = tuple(work)
        self._history_read = "-"
        self._looks = 0

    async def look(self, bus: Bus) -> None:
        """Check once, and restart workers that have died. While Redis is down, no worker is
        ready."""
        try:
            self.ready = frozenset(
                worker.name for worker in await live_workers(bus) if worker.state == "ready"
            )
            await self._count_commits(bus)
            if self._looks % _LOOKS_PER_SCAN == 0:
                self.keys_without_ttl.update(await find_keys_without_ttl(bus))
        except OUTAGE:
            self.ready = frozenset()
        self.died += self._fleet.revive()
        self._looks += 1

    async def _count_commits(self, bus: Bus) -> None:
        for shard in bus.keys.all_shards():
            page = await bus.redis.xrange(shard.history, self._history_read, count=5000)
            if page:
                self.commits += sum(fields[b"event"] == b"commit" for _, fields in page)
                self._history_read = f"({page[-1][0].decode()}"

    async def wait_until_idle(self, bus: Bus) -> list[str]:
        """Wait until no work is left and dead consumers are forgotten; return the remaining
        consumers' names. Gives up after `REST_SECONDS`: the checker reports what was left."""
        until = time.monotonic() + REST_SECONDS
        # Readers of a log are not named after their worker, so that they are only counted.
        recorders = sum(slot.kind == "recorder" for slot in self._fleet.slots)
        while True:
            self.died += self._fleet.revive()
            alive = tuple(f"{slot.name}-" for slot in self._fleet.slots)
            states = await stream_states(bus, work_keys(bus, self._work))
            names = sorted({name for state in states.values() for name in state.consumers})
            logs = await stream_states(bus, log_keys(bus))
            busy = any(state.length for state in [*states.values(), *logs.values()])
            strangers = [name for name in names if not name.startswith(alive)]
            crowded = any(len(state.consumers) > recorders for state in logs.values())
            if (not busy and not strangers and not crowded) or time.monotonic() > until:
                return names
            await asyncio.sleep(LOOK_SECONDS)
