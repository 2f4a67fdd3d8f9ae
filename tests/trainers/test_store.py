"""The recorder's store as trainers read it: what cannot be read is named and costs only itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trainers.store import OTHER_VERSION, read_trajectories

from .grpo.recorded import a_run, record


def rewrite(store: Path, *bodies: str) -> None:
    """Replace the recorded runs' JSON."""
    (file,) = (store / "trajectories").glob("*.parquet")
    table: Any = pq.read_table(file)
    at = table.schema.get_field_index("trajectory")
    pq.write_table(table.set_column(at, "trajectory", pa.array(bodies)), file)


async def test_runs_of_a_newer_writer_and_broken_ones_are_named_apart(tmp_path: Path) -> None:
    runs = [a_run(number) for number in range(3)]
    await record(tmp_path, runs)
    newer = {**runs[1].model_dump(mode="json"), "version": 7, "mood": "good"}
    rewrite(tmp_path, runs[0].model_dump_json(), json.dumps(newer), "{")
    reading = read_trajectories(tmp_path, "pair")
    assert [each.run.id for each in reading.records] == [runs[0].run.id]
    assert [(each.reason, each.detail) for each in reading.skipped] == [
        (OTHER_VERSION, "version 7; this program reads 1"),
        ("no trajectory record", ""),
    ]


async def test_without_a_workflow_all_runs_are_read(tmp_path: Path) -> None:
    await record(tmp_path, [a_run(1, workflow="pair"), a_run(2, workflow="solo")])
    assert len(read_trajectories(tmp_path, None).records) == 2
    assert len(read_trajectories(tmp_path, "solo").records) == 1
