"""The recorder's Parquet store, read for training."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loopline.agents.records import RECORDS_VERSION, Trajectory
from loopline.trainers.data.json_files import Reading, Skipped
from loopline.trainers.errors import UnreadableData

CHANGED = "record that is not what was written: its hash is another"
OTHER_VERSION = "records of another schema version"


def read_trajectories(store: Path, workflow: str | None) -> Reading[Trajectory]:
    """Every recorded run of a workflow, or of all, in the order of their ids; of a run that was
    replayed the newest. Raises `UnreadableData` if there is no store.

    `store` is the folder that holds `trajectories/`: `.loopline/store` of a deployment.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = store / "trajectories"
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise UnreadableData(
            f"{folder} holds no recorded runs (*.parquet): give a deployment's store, for example "
            ".loopline/store, after at least one run has ended"
        )
    trajectories: dict[str, Trajectory] = {}
    skipped: list[Skipped] = []
    filters = None if workflow is None else [("workflow", "=", workflow)]
    for file in files:
        try:
            table: Any = pq.read_table(file, columns=["trajectory", "sha256"], filters=filters)
            rows: list[tuple[str, str]] = list(
                zip(table["trajectory"].to_pylist(), table["sha256"].to_pylist(), strict=True)
            )
        except (OSError, pa.ArrowException, KeyError) as error:
            skipped.append(Skipped(file.name, "the file cannot be read", str(error)[:160]))
            continue
        for number, (row, written) in enumerate(rows):
            if hashlib.sha256(row.encode()).hexdigest() != written:
                skipped.append(Skipped(f"{file.name}[{number}]", CHANGED))
                continue
            try:
                trajectory = Trajectory.model_validate_json(row)
            except ValidationError as error:
                skipped.append(_skipped_record(f"{file.name}[{number}]", row, error))
            else:
                trajectories[trajectory.run.id] = trajectory
    return Reading(tuple(trajectories[run] for run in sorted(trajectories)), tuple(skipped))


def _skipped_record(where: str, row: str, error: ValidationError) -> Skipped:
    """A newer writer's record, or a broken one."""
    try:
        version = json.loads(row)["version"]
    except (ValueError, KeyError, TypeError):
        version = RECORDS_VERSION
    if version != RECORDS_VERSION:
        detail = f"version {version!s:.20}; this program reads {RECORDS_VERSION}"
        return Skipped(where, OTHER_VERSION, detail)
    place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
    return Skipped(where, "no trajectory record", place)
