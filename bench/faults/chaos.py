"""The attacker. The seed fixes the plan: which blow falls how long after the one before and how
hard; whom it meets depends on who is up at that moment."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Mapping

from bench.bus_bench.redis_process import RedisProcess
from bench.faults.fleet import Fleet, Slot
from bench.faults.lookout import Lookout

BLOWS = {"kill": 50, "stop": 35, "redis": 15}
PAUSE_SECONDS = (0.2, 1.2)
"""Between two blows, at least."""
COMMITS = (0.0, 20.0)
"""Between two blows, at least: a slow machine, on which workers take long to start, must get on
with its work too."""
QUORUM = 0.6
"""Share of the fleet that is at work before the next blow falls."""
STOP_LEASES = (0.5, 2.5)
"""How long a worker is stopped, in leases: most wake to find their work taken over."""
REDIS_DOWN_SECONDS = (0.0, 1.0)
LOOK_SECONDS = 0.1


class Chaos:
    """Strikes until it is told to stop; then leaves everything running."""

    def __init__(
        self,
        seed: int,
        fleet: Fleet,
        server: RedisProcess,
        lookout: Lookout,
        lease_seconds: float,
        blows: Mapping[str, int] = BLOWS,
    ) -> None:
        self.struck: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._fleet = fleet
        self._server = server
        self._lookout = lookout
        self._lease = lease_seconds
        self._blows = dict(blows)
        """Kind → weight."""
        self._waking: set[asyncio.Task[None]] = set()

    async def run(self, enough: asyncio.Event) -> None:
        """Strike until `enough` is set."""
        while not enough.is_set():
            # All draws are made first, so that the plan does not depend on whom a blow meets.
            pause = self._random.uniform(*PAUSE_SECONDS)
            commits = self._lookout.commits + self._random.uniform(*COMMITS)
            blow = self._random.choices(list(self._blows), list(self._blows.values()))[0]
            place, hardness = self._random.random(), self._random.random()
            await _timeout_of(enough, pause)
            while not enough.is_set() and (self._lookout.commits < commits or not self._at_work()):
                await _timeout_of(enough, LOOK_SECONDS)
            if not enough.is_set():
                await self._strike(blow, place, hardness)
        for task in self._waking:
            task.cancel()
        await asyncio.gather(*self._waking, return_exceptions=True)
        for slot in self._fleet.slots:
            self._fleet.resume(slot)

    def _at_work(self) -> bool:
        return len(self._targets()) >= QUORUM * len(self._fleet.slots)

    def _targets(self) -> list[Slot]:
        ready = self._lookout.ready
        return [slot for slot in self._fleet.slots if slot.name in ready and not slot.stopped]

    async def _strike(self, blow: str, place: float, hardness: float) -> None:
        if blow == "redis":
            self.struck["redis"] += 1
            self._server.kill()
            await asyncio.sleep(_between(REDIS_DOWN_SECONDS, hardness))
            await asyncio.to_thread(self._server.start)
            return
        targets = self._targets()
        slot = targets[int(place * len(targets))]
        self.struck[blow] += 1
        if blow == "kill":
            self._fleet.kill(slot)
            self._fleet.start(slot)
        else:
            self._fleet.stop(slot)
            seconds = self._lease * _between(STOP_LEASES, hardness)
            task = asyncio.create_task(self._wake(slot, slot.name, seconds))
            self._waking.add(task)
            task.add_done_callback(self._waking.discard)

    async def _wake(self, slot: Slot, name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if slot.name == name:
            self._fleet.resume(slot)


async def _timeout_of(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _between(bounds: tuple[float, float], share: float) -> float:
    low, high = bounds
    return low + share * (high - low)
