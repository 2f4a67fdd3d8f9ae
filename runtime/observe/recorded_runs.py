"""Finds runs of the store by their whole id. In its own module, so that reading a folder doesn't
wait for the import of the bus client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loopline.agents.errors import VersionMismatch
from loopline.agents.records import Run, Step, Trajectory
from loopline.agents.versions import read_trajectory
from loopline.runtime.errors import InputError

if TYPE_CHECKING:
    from loopline.bus import OpenWait


@dataclass(frozen=True)
class KnownRun:
    """A run and its journal so far; `ended` is set once the trajectory is complete."""

    run: Run
    steps: tuple[Step, ...]
    ended: Trajectory | None
    waits: tuple[OpenWait, ...] = ()
    """The run's open waits."""

    @classmethod
    def whole(cls, ended: Trajectory) -> KnownRun:
        return cls(ended.run, ended.steps, ended)

    def trajectory(self) -> Trajectory:
        """Return the trajectory. Raises `InputError` while the run is active."""
        if self.ended is None:
            raise InputError(f"run {self.run.id} has not ended yet")
        return self.ended


def find_recorded_run(store: Path, run_id: str) -> KnownRun | None:
    """Return a run of the store by its whole id. Raises `InputError` like `from_store`."""
    ended = from_store(store, run_id)
    return None if ended is None else KnownRun.whole(ended)


def from_store(store: Path, run_id: str) -> Trajectory | None:
    """Return a trajectory that the recorder wrote; the newest one if the run was replayed. An
    unreadable file is skipped if other files contain the run; otherwise it raises `InputError`."""
    from loopline.workers.store.files import find_run_rows

    try:
        rows = find_run_rows(store / "trajectories", run_id)
    except OSError as error:
        raise InputError(f"the store in {store} can't be read: {error}") from error
    damaged = [str(error) for error in rows.damaged]
    for _, _, body in sorted(rows.bodies, reverse=True):
        try:
            return read_trajectory(body)
        except VersionMismatch as error:
            reason = " ".join(str(error).split())[:160]
            damaged.append(f"its record can't be read ({reason})")
    if damaged:
        raise InputError(
            f"no readable file of the store has the run {run_id}, and {damaged[0]}",
            hint="`runtime store verify` sets damaged files aside and keeps the rest of them; a "
            "newer program's records need that program.",
        )
    return None
