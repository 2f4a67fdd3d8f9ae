"""The recorder's Parquet store, read for training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agents.records import Trajectory
from trainers.data.json_files import Reading, Skipped
from trainers.errors import UnreadableData


def read_trajectories(store: Path, workflow: str) -> Reading[Trajectory]:
    """Every recorded run of a workflow, in the order of their ids; of a run that was replayed the
    newest. Raises `UnreadableData` if there is no store.

    `store` is the folder that holds `trajectories/`: `.switchyard/store` of a deployment.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = store / "trajectories"
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise UnreadableData(
            f"{folder} holds no recorded runs (*.parquet): give a deployment's store, for example "
            ".switchyard/store, after at least one run has ended"
        )
    found: dict[str, Trajectory] = {}
    skipped: list[Skipped] = []
    for file in files:
        try:
            table: Any = pq.read_table(
                file, columns=["trajectory"], filters=[("workflow", "=", workflow)]
            )
            rows: list[str] = table["trajectory"].to_pylist()
        except (OSError, pa.ArrowException, KeyError) as error:
            skipped.append(Skipped(file.name, "the file cannot be read", str(error)[:160]))
            continue
        for number, row in enumerate(rows):
            try:
                trajectory = Trajectory.model_validate_json(row)
            except ValidationError as error:
                place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
                skipped.append(Skipped(f"{file.name}[{number}]", "no trajectory record", place))
            else:
                found[trajectory.run.id] = trajectory
    return Reading(tuple(found[run] for run in sorted(found)), tuple(skipped))
