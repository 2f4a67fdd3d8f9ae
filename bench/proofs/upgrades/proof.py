"""`bench upgrades`: while runs are in flight, a deployment changes to another version and back, one
worker after another and all at once; every run must end well and stay readable on both sides."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from loopline.bench.errors import UsageError
from loopline.bench.proofs.harness import Options, Progress, Proof
from loopline.bench.proofs.outcome import Measurement, Outcome, Violation, measured
from loopline.bench.proofs.upgrades.deployment import (
    Fleet,
    run_side,
    wait_until_recorded,
    wait_until_under_way,
)
from loopline.bench.proofs.upgrades.other_version import CHANGES, Version, copy_of_this
from loopline.bench.proofs.upgrades.side import Job, bad_ends
from loopline.bus import BusSettings
from loopline.testing import running_redis

Way = Literal["rolling", "in place"]
WAYS: tuple[Way, ...] = ("rolling", "in place")
ROLLING_PAIRS = 2
"""Workers of each kind in a rolling upgrade."""


class UpgradesOptions(Options):
    """The other version is a copy of this program with an additional word in its prompts, with an
    optional field in `Step`, or with version 2 of the payload `subtask`. A deployment changes to it
    and back, each time with runs in flight."""

    runs: int = Field(default=60, ge=2, le=5_000)
    """Runs in flight at each change of version."""
    changes: str = ",".join(CHANGES)
    """The differences of the other version, separated by commas."""
    forks: int = Field(default=3, ge=0, le=100)
    """Runs that each side shows, replays and forks with commands at the end."""


def _require_changes(options: UpgradesOptions) -> None:
    """Raises `UsageError`."""
    for name in options.changes.split(","):
        if name not in CHANGES:
            raise UsageError(f"--changes {name!r}: choose from {', '.join(CHANGES)}")


@dataclass(frozen=True)
class Upgraded:
    """Results of the runs for one way and one change."""

    runs: int
    in_flight: int
    """Runs in flight when their version changed."""
    bad: list[str]
    """Runs with any other end, and dead letters."""
    unreadable: list[str]
    """Runs and records that a side could not show, replay, fork or read."""


async def upgrade_and_back(
    way: Way, old: Version, new: Version, folder: Path, options: UpgradesOptions
) -> Upgraded:
    """Raises `BenchError` or `UserError` if a process fails by itself."""
    with running_redis(folder / "redis", listen="tcp") as server:
        bus = BusSettings(redis_url=server.url, lease_seconds=5.0, sweep_seconds=0.2)
        fleet, state = Fleet(bus, folder), folder / "state"
        wanted: dict[str, str] = {}
        in_flight = 0
        try:
            for _ in range(ROLLING_PAIRS if way == "rolling" else 1):
                await fleet.start(old, fleet.settings())
            for here, there in ((old, new), (new, old)):
                numbers = tuple(range(len(wanted), len(wanted) + options.runs))
                admitted, _ = await run_side(here, Job(bus=bus, admit=numbers), state)
                wanted |= admitted
                in_flight += await wait_until_under_way(bus, [*admitted])
                await _change(way, fleet, there)
                await bad_ends(bus, admitted)  # all have ended
            bad = await bad_ends(bus, wanted)
            unreadable: list[str] = []
            await wait_until_recorded(bus)
            for side in (new, old):
                job = Job(bus=bus, look=tuple(wanted), fork=options.forks, store=fleet.store)
                unreadable += (await run_side(side, job, state))[1]
            unreadable += [str(path.name) for path in (fleet.store / "unreadable").glob("*")]
        finally:
            await fleet.stop()
    return Upgraded(len(wanted), in_flight, bad, unreadable)


async def _change(way: Way, fleet: Fleet, version: Version) -> None:
    """Change to workers of another version: in the rolling way a new worker is ready before an old
    one leaves; in place, all stop first."""
    if way == "in place":
        await fleet.stop()
        await fleet.start(version, fleet.settings())
        return
    for _ in range(ROLLING_PAIRS):
        for settings in fleet.settings():
            await fleet.start(version, [settings])
            await fleet.stop(1)


def run(options: UpgradesOptions, progress: Progress) -> Outcome:
    """Raises the errors of `upgrade_and_back`."""
    measurements: list[Measurement] = []
    violations: list[Violation] = []
    ended = unreadable = in_flight = runs = 0
    with tempfile.TemporaryDirectory(prefix="bench-upgrades-") as scratch:
        old = copy_of_this(Path(scratch), "old")
        for change in options.changes.split(","):
            new = copy_of_this(Path(scratch), f"new-{change}", CHANGES[change])
            for way in WAYS:
                subject = f"{change}, {way}"
                progress.say(f"{subject}…")
                folder = Path(scratch) / f"{change}-{way.replace(' ', '-')}"
                result = asyncio.run(upgrade_and_back(way, old, new, folder, options))
                good = result.runs - len(result.bad)
                violations += [Violation("ends well", text, subject) for text in result.bad]
                violations += [Violation("readable", text, subject) for text in result.unreadable]
                measurements += [
                    measured("ended well", good, better="higher", bar=result.runs, subject=subject),
                    measured("in flight", result.in_flight, subject=subject),
                    measured(
                        "unreadable", len(result.unreadable), better="lower", bar=0, subject=subject
                    ),
                ]
                ended, runs = ended + good, runs + result.runs
                unreadable, in_flight = (
                    unreadable + len(result.unreadable),
                    in_flight + (result.in_flight),
                )
    measurements += [
        measured("ended", ended, better="higher", bar=runs),
        measured("unreadable", unreadable, better="lower", bar=0),
        measured("in flight at a change", in_flight, better="higher", bar=1),
    ]
    outcome = Outcome(
        about=f"{options.runs} runs in flight at each change of version, forward and back",
        measurements=measurements,
    )
    outcome.violate(violations)
    return outcome


def _minutes(options: UpgradesOptions) -> float:
    return (options.changes.count(",") + 1) * len(WAYS) * (0.5 + options.runs / 120)


PROOF = Proof(
    name="upgrades",
    title="runs in flight outlast upgrades, forward and back",
    options=UpgradesOptions,
    minutes=_minutes,
    run=run,
    check=_require_changes,
)
