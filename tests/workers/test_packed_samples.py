"""Samples packed by a compaction: a reader gets the same from them as from the records, and falls
back to the records where they are missing or damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loopline.bench.proofs.store.rows import run_id, write_runs
from loopline.trainers.data.json_files import Reading
from loopline.trainers.data.samples import AnyRun, SampledRun, read_samples
from loopline.workers.store import compaction, samples
from loopline.workers.store.compaction import compact
from loopline.workers.store.files import parquet_files
from loopline.workers.store.records import CHANGED
from loopline.workers.store.verification import summary, verify

RUNS = 120


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A compacted store with samples of several row groups."""
    store = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "GROUP_BYTES", 200_000)
        patch.setattr(samples, "SMALLEST_BYTES", 0)
        write_runs(store / "trajectories", RUNS, 7, 10)
        compact(store / "trajectories", everything=True)
        yield store


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "store"))


def tokens(reading: Reading[AnyRun]) -> list[object]:
    return [
        (run.run.id, run.team_reward, call.prompt_ids, call.output_ids, call.logprobs, call.policy)
        for run in reading.records
        for step in run.steps
        for call in step.calls
    ]


def without_samples(store: Path, folder: Path) -> Reading[AnyRun]:
    shutil.copytree(store / "trajectories", folder / "plain" / "trajectories")
    return read_samples(folder / "plain", None)


def the_samples(store: Path) -> Path:
    [path] = (store / "samples").iterdir()
    return path


def change(path: Path, name: str, row: int, value: object) -> None:
    """Rewrite a file with another value and the same row groups."""
    file = pq.ParquetFile(str(path))
    groups = [file.read_row_group(group) for group in range(file.metadata.num_row_groups)]
    with pq.ParquetWriter(str(path), groups[0].schema) as writer:
        first = 0
        for group in groups:
            values = group[name].to_pylist()
            if first <= row < first + group.num_rows:
                values[row - first] = value
            field = group.schema.field(name)
            at = group.schema.get_field_index(name)
            writer.write_table(group.set_column(at, field, pa.array(values, field.type)))
            first += group.num_rows


def test_training_reads_the_same_from_packed_samples_and_from_records(
    store: Path, tmp_path: Path
) -> None:
    assert the_samples(store).name == parquet_files(store / "trajectories")[0].name
    assert pq.ParquetFile(str(the_samples(store))).metadata.num_row_groups > 1
    packed, plain = read_samples(store, None), without_samples(store, tmp_path)
    assert tokens(packed) == tokens(plain)
    assert len(packed.records) == RUNS
    assert packed.skipped == plain.skipped == ()


def test_records_are_not_read_where_packed_samples_exist(store: Path) -> None:
    [path] = parquet_files(store / "trajectories")
    change(path, "trajectory", 5, "{}")
    reading = read_samples(store, "delegate")
    assert len(reading.records) == RUNS
    assert all(isinstance(run, SampledRun) for run in reading.records)
    assert not read_samples(store, "solo").records


def test_a_record_changed_before_the_compaction_gets_no_sample(store: Path) -> None:
    [path] = parquet_files(store / "trajectories")
    change(path, "trajectory", 5, "{}")
    shutil.rmtree(store / "samples")
    compact(store / "trajectories")
    reading = read_samples(store, None)
    assert len(reading.records) == RUNS - 1
    assert [(skip.where, skip.reason) for skip in reading.skipped] == [(f"{path.name}[5]", CHANGED)]


def test_the_record_replaces_a_changed_sample_and_verify_removes_its_file(
    store: Path, tmp_path: Path
) -> None:
    path = the_samples(store)
    change(path, "sample", 100, b"other")
    assert tokens(read_samples(store, None)) == tokens(without_samples(store, tmp_path))
    checked = verify(store)
    assert [line.partition(":")[0] for line in checked.damaged] == [f"samples/{path.name}"]
    assert not path.exists()
    compact(store / "trajectories")
    assert the_samples(store).name == path.name
    assert verify(store).sound


@pytest.mark.parametrize("left", [0, 100, 20_000])
def test_records_replace_damaged_samples(store: Path, tmp_path: Path, left: int) -> None:
    path = the_samples(store)
    path.write_bytes(path.read_bytes()[:left])
    reading = read_samples(store, None)
    assert tokens(reading) == tokens(without_samples(store, tmp_path))
    assert reading.skipped == ()


def test_records_replace_samples_with_flipped_bytes(store: Path, tmp_path: Path) -> None:
    path = the_samples(store)
    body = bytearray(path.read_bytes())
    for at in range(1_000, len(body) - 10_000, 5_000):
        body[at] ^= 0xFF
    path.write_bytes(body)
    assert tokens(read_samples(store, None)) == tokens(without_samples(store, tmp_path))


def test_samples_of_missing_files_or_another_format_are_replaced(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = the_samples(store)
    (store / "samples" / ".left.1.part").write_bytes(b"of a compaction that was killed")
    path.rename(path.with_name("000-1-0-2-0-2.parquet"))
    compact(store / "trajectories")
    assert the_samples(store) == path
    monkeypatch.setattr(samples, "FORMAT", b"0")
    assert len(read_samples(store, None).records) == RUNS


def test_a_stopped_compaction_leaves_no_partial_samples(store: Path) -> None:
    shutil.rmtree(store / "samples")
    looks = iter([False, False])
    samples.refresh_samples(store / "trajectories", lambda: next(looks, True))
    assert list((store / "samples").iterdir()) == []
    assert len(read_samples(store, None).records) == RUNS


def test_a_compaction_writes_samples_only_of_large_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "SMALLEST_BYTES", 2**20)
    write_runs(tmp_path / "trajectories", 20, 7, 10)
    compact(tmp_path / "trajectories")
    assert not (tmp_path / "samples").exists()
    assert summary(tmp_path)["samples"] == {"files": 0, "bytes": 0}


def test_the_newest_generation_of_a_replayed_run_is_read(store: Path) -> None:
    """This works although the newer row is in another file, which has no samples yet."""
    [path] = parquet_files(store / "trajectories")
    rows = pq.read_table(str(path))
    number = rows["run_id"].to_pylist().index(run_id(3, 7))
    again = rows.slice(number, 1)
    at = again.schema.get_field_index("generation")
    again = again.set_column(at, again.schema.field("generation"), pa.array([1], pa.int32()))
    entry = again["entry"].to_pylist()[0].partition("-")[0]
    pq.write_table(again, str(path.with_name(f"000-{entry}-0-{entry}-0-1.parquet")))
    reading = read_samples(store, None)
    assert len(reading.records) == RUNS
    assert reading.skipped == ()
