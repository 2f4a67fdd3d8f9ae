"""A run from its submission to its end, whatever the bus does meanwhile: full, or away for a while.

Who drives runs notes a run's id before it submits it, and submits what it has noted again after a
crash: the same id is the same run to the bus, so nothing that exists is paid for twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable

from loopline.agents.records import Outcome, Run, Trajectory
from loopline.agents.usage import UsageEntry
from loopline.bus import BusUnavailable, Overloaded
from loopline.runtime.client.run_client import RunClient

FIRST_SECONDS = 10.0
"""Seconds of refusals before a notice: short ones are usual while other runs end."""
FURTHER_SECONDS = 60.0


class AdmissionNotice:
    """Notice for all runs that one command submits."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next: float | None = None

    def admitted(self) -> None:
        self._next = None

    def refused(self, error: Overloaded) -> None:
        """Note another refusal without an admission since the last one."""
        now = time.monotonic()
        if self._next is None:
            self._next = now + FIRST_SECONDS
        elif now >= self._next:
            self._next = now + FURTHER_SECONDS
            self._say(
                f"waiting for room on the bus: {error}. Runs that end make room once a recorder "
                "has written them: `runtime status` shows both"
            )


PAUSE_SECONDS = 0.2
"""First pause after a refused admission or an outage; doubles up to `MAX_PAUSE_SECONDS`."""
MAX_PAUSE_SECONDS = 5.0
OUTAGE_TRIES = 12
"""Tries on an unreachable bus: about a minute. The client itself outlasts shorter outages."""


class Stopped(Exception):
    """Raised when the driver was told to stop while the bus refused the run."""


class RunDriver:
    """Drives all runs of one command."""

    def __init__(
        self,
        client: RunClient,
        say: Callable[[str], None],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create a driver. `say` receives why nothing proceeds: an outage once for each run, a full
        bus now and then. A run that the bus refuses while `stopped()` is given up."""
        self._client = client
        self._say = say
        self._stopped = stopped
        self._notice = AdmissionNotice(say)

    async def finish(
        self, make: Callable[[], Run], admitted: Callable[[], None] = lambda: None
    ) -> tuple[Trajectory, list[UsageEntry]]:
        """Submit a run and wait for its end; its trajectory and what its calls used.

        `make` makes the run again for each try, by the same id: its time runs from when it is made,
        and what it waits for admission is none of it, or a full bus would count against the model.
        `admitted` is called each time the bus has taken it.

        Raises `BusUnavailable` when the bus stays away, and `Stopped`.
        """
        pause, outages = PAUSE_SECONDS, 0
        while True:
            run = make()
            try:
                await self._submit(run)
                admitted()
                return await self._client.wait(run.id), await self._client.usage(run.id)
            except Overloaded:
                pass
            except BusUnavailable as error:
                outages += 1
                if outages == 1:
                    self._say(str(error))
                if outages >= OUTAGE_TRIES:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def admit(self, make: Callable[[], Run]) -> None:
        """Submit a run, made as for `finish`, and return when the bus has taken it. Raises
        `BusUnavailable` at once, and `Stopped`."""
        pause = PAUSE_SECONDS
        while True:
            try:
                return await self._submit(make())
            except Overloaded:
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _submit(self, run: Run) -> None:
        """Raises `Overloaded`, `BusUnavailable`, `Stopped`."""
        try:
            await self._client.submit(run)
        except Overloaded as error:
            self._notice.refused(error)
            if self._stopped():
                raise Stopped from error
            raise
        self._notice.admitted()


def lapsed(trajectory: Trajectory, since: float) -> bool:
    """Whether the run's time ran out before `since` (Unix seconds), when nobody waited for it (a
    reboot, a long pause): that says nothing of the model, so the question is to be asked again.

    Where no worker was there either, the run is ended later, when one is back: its deadline counts.
    """
    over = min(trajectory.run.deadline, trajectory.ended)
    return trajectory.outcome is Outcome.DEADLINE and over < since


def seed_of(seed: int, name: str) -> int:
    """Return the seed of every run on an item of that name: the same question has the same random
    numbers, whatever is compared on it. Below 2³²."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:4])
