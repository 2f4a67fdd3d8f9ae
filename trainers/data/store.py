"""The recorder's Parquet store, read for training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from loopline.agents.records import Trajectory
from loopline.trainers.data.json_files import Reading, Skipped
from loopline.trainers.errors import UnreadableData
from loopline.workers.gc_tuning import pause_collection
from loopline.workers.store import records as store_records


def read_trajectories(store: Path, workflow: str | None) -> Reading[Trajectory]:
    """Every recorded run of a workflow, or of all, in the order of their ids; of a run that was
    replayed the newest. Raises `UnreadableData` if there is no store.

    `store` is the folder that holds `trajectories/`: `.loopline/store` of a deployment.
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
