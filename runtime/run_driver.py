"""Drives a run from its submission to its end, even if the bus is full or down for a while.

A caller that drives runs records a run's id before it submits the run, and submits recorded runs
again after a crash. The bus treats the same id as the same run, so no run is paid for twice.
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
"""Seconds of refusals before a notice. Short refusals are normal while other runs end."""
FURTHER_SECONDS = 60.0


class AdmissionNotice:
    """One notice about refusals for all runs that a command submits."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next: float | None = None

    def admitted(self) -> None:
        self._next = None

    def refused(self, error: Overloaded) -> None:
        """Record another refusal without an admission since the last one."""
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
"""First pause after a refused admission or an outage; it doubles up to `MAX_PAUSE_SECONDS`."""
MAX_PAUSE_SECONDS = 5.0
OUTAGE_TRIES = 12
"""Attempts on an unreachable bus, about a minute. The client itself survives shorter outages."""


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
        """Create a driver. `say` receives the reasons for a delay: an outage once per run, a full
        bus now and then. If the bus refuses a run while `stopped()` is true, the driver gives the
        run up."""
        self._client = client
        self._say = say
        self._stopped = stopped
        self._notice = AdmissionNotice(say)

    async def finish(
        self, make: Callable[[], Run], admitted: Callable[[], None] = lambda: None
    ) -> tuple[Trajectory, list[UsageEntry]]:
        """Submit a run, wait for its end, and return its trajectory and the usage of its calls.

        `make` creates the run for each attempt, with the same id: the run's time starts when it is
        created, so that a wait for admission on a full bus does not count against the model.
        `admitted` is called each time the bus has accepted the run.

        Raises `BusUnavailable` if the bus stays unreachable, and `Stopped`.
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
        """Submit a run, created as for `finish`, and return when the bus has accepted it. Raises
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
    """Whether the run's time ran out before `since` (Unix seconds), when no process waited for it
    (a reboot, a long pause). Such a time-out is not the model's fault, so the question has to be
    asked again.

    If no worker was running either, a worker ends the run later: the deadline counts, not that end.
    """
    over = min(trajectory.run.deadline, trajectory.ended)
    return trajectory.outcome is Outcome.DEADLINE and over < since


def seed_of(seed: int, name: str) -> int:
    """Return the seed (below 2³²) of every run on the item `name`, so that all arms of a comparison
    use the same random numbers for a question."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:4])
