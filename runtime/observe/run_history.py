"""Finding runs: those on the bus (in flight, or ended within the retention), then the store's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loopline.agents.records import Run, Step, Trajectory
from loopline.bus import Bus
from loopline.runtime.client.client import RunUnknown, run_of, steps_of, trajectory_of
from loopline.runtime.errors import InputError

MIN_FRAGMENT = 4


async def run_ids(bus: Bus) -> list[str]:
    """Every run that the bus knows, newest first."""
    ids: list[str] = []
    for shard in bus.keys.all_shards():
        ids += [run_id.decode() for run_id in await bus.redis.zrange(shard.runs(), 0, -1)]
    return sorted(ids, reverse=True)


async def resolve(bus: Bus, fragment: str) -> str:
    """The run that `fragment` (a whole id, or a part that only one run has) means.

    A whole id is taken as it is: the run may live in the store alone. Raises `InputError`.
    """
    if len(fragment) == 36:
        return fragment
    if len(fragment) < MIN_FRAGMENT:
        raise InputError(f"{fragment!r} is too short for a run's id (at least {MIN_FRAGMENT})")
    hits = [run_id for run_id in await run_ids(bus) if fragment in run_id]
    if len(hits) == 1:
        return hits[0]
    if not hits:
        raise InputError(
            f"no run on the bus has {fragment!r} in its id",
            hint="`runtime runs ls` lists them; runs of the store need their whole id.",
        )
    raise InputError(f"{len(hits)} runs have {fragment!r} in their ids: {', '.join(hits[:5])} …")


@dataclass(frozen=True)
class KnownRun:
    """A run and its journal so far; `ended` once there is a whole trajectory."""

    run: Run
    steps: tuple[Step, ...]
    ended: Trajectory | None

    @classmethod
    def whole(cls, ended: Trajectory) -> KnownRun:
        return cls(ended.run, ended.steps, ended)

    def trajectory(self) -> Trajectory:
        """Raises `InputError` while the run goes on."""
        if self.ended is None:
            raise InputError(f"run {self.run.id} has not ended yet")
        return self.ended


async def find_run(bus: Bus, fragment: str, store: Path) -> KnownRun:
    """A run by its id, or a part of it, from the bus or else from the store.

    Raises `InputError` or `RunUnknown`.
    """
    run_id = await resolve(bus, fragment)
    state = await bus.run_state(run_id)
    if state.active:
        return KnownRun(run_of(state), steps_of(state), None)
    if state.state != "missing":
        return KnownRun.whole(trajectory_of(state))
    known_run = find_recorded_run(store, run_id)
    if known_run is None:
        raise RunUnknown(
            f"neither the bus nor the store in {store} has a run {run_id}",
            hint="`runtime runs ls` lists those on the bus.",
        )
    return known_run


def find_recorded_run(store: Path, run_id: str) -> KnownRun | None:
    """A run of the store by its whole id."""
    ended = from_store(store, run_id)
    return None if ended is None else KnownRun.whole(ended)


def from_store(store: Path, run_id: str) -> Trajectory | None:
    """A trajectory that the recorder wrote; the newest if the run was replayed. A file that can't
    be read is passed over while others may have the run; then it is an `InputError`."""
    folder = store / "trajectories"
    files = sorted(folder.glob("*.parquet"), reverse=True)
    if not files:
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    damaged = ""
    for file in files:
        try:
            table: Any = pq.read_table(
                file, columns=["run_id", "trajectory"], filters=[("run_id", "=", run_id)]
            )
            if table.num_rows:
                body: str = table["trajectory"][table.num_rows - 1].as_py()
                return Trajectory.model_validate_json(body)
        except (OSError, pa.ArrowException, ValidationError) as error:
            damaged = damaged or f"{file} can't be read ({' '.join(str(error).split())[:160]})"
    if damaged:
        raise InputError(
            f"no readable file of the store has the run {run_id}, and {damaged}",
            hint="Restore that file from a copy; a newer program's records need that program.",
        )
    return None
