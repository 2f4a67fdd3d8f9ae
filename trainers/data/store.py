"""The recorder's Parquet store, read for training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loopline.agents.records import RECORDS_VERSION, Trajectory
from loopline.trainers.data.json_files import Reading, Skipped
from loopline.trainers.errors import UnreadableData

CHANGED = "record that is not what was written: its hash is another"
OTHER_VERSION = "records of another schema version"
NO_RECORD = "no trajectory record"


def read_trajectories(store: Path, workflow: str | None) -> Reading[Trajectory]:
    """Every recorded run of a workflow, or of all, in the order of their ids; of a run that was
    replayed the newest. Raises `UnreadableData` if there is no store.

    `store` is the folder that holds `trajectories/`: `.loopline/store` of a deployment.
    """
    folder = store / "trajectories"
    if not any(folder.glob("*.parquet")):
        raise UnreadableData(
            f"{folder} holds no recorded runs (*.parquet): give a deployment's store, for example "
            ".loopline/store, after at least one run has ended"
        )
    trajectories: dict[str, Trajectory] = {}
    skipped: list[Skipped] = []
    filters = None if workflow is None else [("workflow", "=", workflow)]
    for where, (row,) in checked_rows(folder, ("trajectory",), skipped, filters):
        try:
            trajectory = Trajectory.model_validate_json(row)
        except ValidationError as error:
            skipped.append(skipped_record(where, row, error))
        else:
            trajectories[trajectory.run.id] = trajectory
    return Reading(tuple(trajectories[run] for run in sorted(trajectories)), tuple(skipped))


def checked_rows(
    folder: Path,
    columns: tuple[str, ...],
    skipped: list[Skipped],
    filters: list[tuple[str, str, str]] | None = None,
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Where each row of a table stands, and these columns of it, of which the first is the record
    that the row's hash is of. Files that can't be read, and rows that were changed, are skipped."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in sorted(folder.glob("*.parquet")):
        try:
            table: Any = pq.read_table(file, columns=[*columns, "sha256"], filters=filters)
            values = [table[name].to_pylist() for name in (*columns, "sha256")]
        except (OSError, pa.ArrowException, KeyError) as error:
            skipped.append(Skipped(file.name, "the file cannot be read", str(error)[:160]))
            continue
        for number, (*row, written) in enumerate(zip(*values, strict=True)):
            where = f"{file.name}[{number}]"
            if hashlib.sha256(row[0].encode()).hexdigest() != written:
                skipped.append(Skipped(where, CHANGED))
            else:
                yield where, tuple(row)


def skipped_record(where: str, row: str, error: ValidationError) -> Skipped:
    """A newer writer's record, or a broken one."""
    try:
        version = json.loads(row)["version"]
    except (ValueError, KeyError, TypeError):
        version = RECORDS_VERSION
    if version != RECORDS_VERSION:
        detail = f"version {version!s:.20}; this program reads {RECORDS_VERSION}"
        return Skipped(where, OTHER_VERSION, detail)
    place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
    return Skipped(where, NO_RECORD, place)
