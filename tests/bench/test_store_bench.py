"""`bench store` on a few runs: every run is listed and read, before and after."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from loopline.bench.errors import BenchError
from loopline.bench.proofs.harness import Progress
from loopline.bench.proofs.store import proof
from loopline.bench.proofs.store.proof import StoreOptions
from loopline.bench.proofs.store.proof import run as measure
from loopline.bench.proofs.store.rows import run_id, write_runs
from loopline.runtime.observe.recorded_runs import from_store
from loopline.trainers.data.store import read_trajectories


def test_bulk_written_runs_read_like_recorded_ones(
    tmp_path: Path,
) -> None:
    steps = write_runs(tmp_path / "trajectories", 120, 7, 50)
    reading = read_trajectories(tmp_path, "delegate")
    assert reading.skipped == ()
    assert [item.run.id for item in reading.records] == [run_id(n, 7) for n in range(120)]
    assert sum(len(item.steps) for item in reading.records) == steps
    assert from_store(tmp_path, run_id(60, 7)) == reading.records[60]


@pytest.mark.slow
def test_all_runs_are_listed_and_read_before_and_after_the_compaction(tmp_path: Path) -> None:
    outcome = measure(StoreOptions(runs=200, shows=20, folder=tmp_path, seed=1), Progress())
    assert not outcome.broken
    assert (outcome.facts["files_before"], outcome.facts["files_after"]) == (4, 1)
    keys = {measurement.key for measurement in outcome.measurements}
    for when in ("before", "after"):
        assert f"compaction / {when} / show_ms p99" in keys
        assert f"compaction / {when} / reader_steps_per_s" in keys
        assert (f"compaction / {when} / first page p50" in keys) == (
            find_spec("duckdb") is not None
        )
    assert list(tmp_path.iterdir()) == []


def test_too_little_disk_space_is_an_error_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> Any:
        return type("Usage", (), {"free": 10})()

    monkeypatch.setattr(proof.shutil, "disk_usage", full)
    with pytest.raises(BenchError, match="give a --folder on another disk"):
        measure(StoreOptions(runs=200, folder=tmp_path, seed=1), Progress())
