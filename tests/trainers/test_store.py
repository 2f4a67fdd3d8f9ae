"""The recorder's store as trainers read it: unreadable runs are reported and cost only
themselves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from loopline.trainers.data.store import read_trajectories
from loopline.workers.store.records import CHANGED, OTHER_VERSION

from .grpo.recorded import a_run, record


def rewrite(store: Path, *bodies: str, hashed: bool = True) -> None:
    """Replace the recorded runs' JSON, and their hashes."""
    (file,) = (store / "trajectories").glob("*.parquet")
    table: Any = pq.read_table(file)
    hashes = [hashlib.sha256(body.encode()).hexdigest() for body in bodies]
    for name, column in (("trajectory", list(bodies)), *((("sha256", hashes),) if hashed else ())):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.array(column))
    pq.write_table(table, file)


async def test_runs_of_a_newer_writer_and_broken_runs_have_distinct_reasons(tmp_path: Path) -> None:
    runs = [a_run(number) for number in range(3)]
    await record(tmp_path, runs)
    newer = {**runs[1].model_dump(mode="json"), "version": 7, "mood": "good"}
    rewrite(tmp_path, runs[0].model_dump_json(), json.dumps(newer), "{")
    reading = read_trajectories(tmp_path, "pair")
    assert [item.run.id for item in reading.records] == [runs[0].run.id]
    assert [(item.reason, item.detail) for item in reading.skipped] == [
        (OTHER_VERSION, "version 7; this program reads 1"),
        ("no trajectory record", ""),
    ]


async def test_a_run_changed_after_recording_is_reported_and_not_learned_from(
    tmp_path: Path,
) -> None:
    """It is readable, but a digit of a token or of a log-probability has changed."""
    runs = [a_run(number) for number in range(2)]
    await record(tmp_path, runs)
    (file,) = (tmp_path / "trajectories").glob("*.parquet")
    table: Any = pq.read_table(file)
    first, second = table["trajectory"].to_pylist()
    rewrite(tmp_path, first, second.replace('"seed":', '"seed":1', 1), hashed=False)
    (trajectory,) = read_trajectories(tmp_path, None).records
    assert trajectory.run.id in first
    assert [skip.reason for skip in read_trajectories(tmp_path, None).skipped] == [CHANGED]


async def test_without_a_workflow_all_runs_are_read(tmp_path: Path) -> None:
    await record(tmp_path, [a_run(1, workflow="pair"), a_run(2, workflow="solo")])
    assert len(read_trajectories(tmp_path, None).records) == 2
    assert len(read_trajectories(tmp_path, "solo").records) == 1
