"""Reads the recorder's Parquet store for training, and decides which of its runs trainings learn
from. The rules are the same during a rollout and for a store, so that a replay yields the same
weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from loopline.agents.records import RECORDS_VERSION, Outcome, Trajectory
from loopline.trainers.data.held_out import TRAIN, require_training
from loopline.trainers.data.json_files import Reading, Skipped, Unreadable
from loopline.trainers.data.samples import AnyRun
from loopline.trainers.errors import UnreadableData
from loopline.workers.gc_tuning import pause_collection
from loopline.workers.store import records as store_records
from loopline.workers.store.records import OTHER_VERSION


def read_trajectories(store: Path, workflow: str | None) -> Reading[Trajectory]:
    """Every recorded run of a workflow, or of all workflows, in the order of their ids; for a
    replayed run, the newest record. Raises `UnreadableData` if there is no store.

    `store` is the folder that contains `trajectories/`: `.loopline/store` of a deployment.
    """
    skipped: list[Skipped] = []
    with pause_collection():
        records = {item.run.id: item for item in iterate_trajectories(store, workflow, skipped)}
    return Reading(tuple(records[run] for run in sorted(records)), tuple(skipped))


def iterate_trajectories(
    store: Path, workflow: str | None, skipped: list[Skipped]
) -> Iterator[Trajectory]:
    """Trajectories of a store: see `loopline.workers.store.records`. Raises `UnreadableData` if
    there is no store."""
    try:
        yield from store_records.iterate_trajectories(store, workflow, skipped)
    except store_records.NoRecords as error:
        raise UnreadableData(str(error)) from error


BROKEN_OFF = frozenset({Outcome.CANCELLED, Outcome.DEADLINE, Outcome.BUDGET, Outcome.ERROR})
"""Outcomes that contain no information on the agents' work. A run that gave up, or whose answer has
not been judged, has reached its end."""
BROKEN = "run that ended by"
FORKED = "run that was forked from another"


def require_usable(trajectory: AnyRun, *, whole: bool, split: str = TRAIN) -> None:
    """Raises `Unreadable` for records of another version, for a run that was broken off (it would
    count as a failure), for a run whose task is held out from training (of a split other than
    `train` and `split`), and, if `whole` runs compete, for a fork."""
    run = trajectory.run
    if trajectory.version != RECORDS_VERSION or run.version != RECORDS_VERSION:
        versions = {trajectory.version, run.version} - {RECORDS_VERSION}
        detail = f"version {', '.join(map(str, versions))}; this program reads {RECORDS_VERSION}"
        raise Unreadable(OTHER_VERSION, detail)
    if trajectory.outcome in BROKEN_OFF:
        raise Unreadable(f"{BROKEN} {trajectory.outcome}", trajectory.reason or "")
    if whole and run.parent is not None:
        raise Unreadable(FORKED, run.parent)
    require_training(run, split)
