"""A compaction keeps each row of a table once, whatever happens meanwhile."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.workers.file_lock import FileLock
from loopline.workers.store import compaction
from loopline.workers.store.compaction import AlreadyCompacting, compact, compaction_lock
from loopline.workers.store.files import find_run_rows, parquet_files

from .store_rows import a_table, entry, last_recorded, rows, run_id, write


def trajectories(store: Path) -> Path:
    return store / "trajectories"


def ten_files(store: Path) -> None:
    for number in range(10):
        write(store, entry(number + 1, number))


def test_small_files_are_merged_into_one_sorted_by_run(tmp_path: Path) -> None:
    for place, number in ((1, 7), (2, 3), (3, 5)):
        write(tmp_path, entry(place, number))
    result = compact(trajectories(tmp_path))
    assert (result.files, result.into, result.rows) == (3, 1, 3)
    [path] = parquet_files(trajectories(tmp_path))
    assert path.name == "000-1-0-3-0-3.parquet"
    assert pq.read_table(str(path))["run_id"].to_pylist() == [run_id(n) for n in (3, 5, 7)]


def test_a_run_recorded_twice_is_kept_once_with_all_its_generations(
    tmp_path: Path,
) -> None:
    write(tmp_path, entry(1, 7), entry(2, 7, 1))
    write(tmp_path, entry(3, 7))
    result = compact(trajectories(tmp_path))
    assert result.duplicates == 1
    assert rows(tmp_path) == [(run_id(7), 0, "3-0"), (run_id(7), 1, "2-0")]


def test_a_duplicate_of_a_full_file_s_row_is_removed_only_by_compacting_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, entry(1, 1), entry(2, 2))
    write(tmp_path, entry(3, 2))
    monkeypatch.setattr(compaction, "FULL_BYTES", 1)
    compact(trajectories(tmp_path))
    assert len(rows(tmp_path)) == 3
    compact(trajectories(tmp_path), everything=True)
    assert rows(tmp_path) == [(run_id(1), 0, "1-0"), (run_id(2), 0, "3-0")]


def test_the_newest_files_are_merged_until_they_outweigh_an_older_one(
    tmp_path: Path,
) -> None:
    write(tmp_path, *(entry(number, number) for number in range(1, 4_000)))
    for number in range(3):
        write(tmp_path, entry(5_000 + number, 5_000 + number))
    compact(trajectories(tmp_path))
    names = [path.name for path in parquet_files(trajectories(tmp_path))]
    assert names == ["000-1-0-3999-0-3999.parquet", "000-5000-0-5002-0-3.parquet"]


def test_fewer_small_files_than_the_threshold_are_left_alone(tmp_path: Path) -> None:
    ten_files(tmp_path)
    assert compact(trajectories(tmp_path), small=11).files == 0
    assert compact(trajectories(tmp_path), small=10).files == 10


def test_a_batch_repeated_after_a_compaction_is_not_written_twice(tmp_path: Path) -> None:
    ten_files(tmp_path)
    compact(trajectories(tmp_path))
    write(tmp_path, entry(4, 3), entry(5, 4), entry(11, 10))
    assert [place for _, _, place in rows(tmp_path)] == [f"{n}-0" for n in range(1, 12)]


def test_files_of_different_shards_are_not_merged(tmp_path: Path) -> None:
    import asyncio

    from .store_rows import a_table

    for shard in (0, 1):
        for number in range(2):
            asyncio.run(a_table(tmp_path, shard).write([entry(number + 1, 10 * shard + number)]))
    compact(trajectories(tmp_path))
    names = [path.name for path in parquet_files(trajectories(tmp_path))]
    assert names == ["000-1-0-2-0-2.parquet", "001-1-0-2-0-2.parquet"]


def test_a_damaged_file_is_set_aside_and_reported_and_the_others_are_merged(tmp_path: Path) -> None:
    ten_files(tmp_path)
    path = parquet_files(trajectories(tmp_path))[3]
    path.write_bytes(path.read_bytes()[:100])
    result = compact(trajectories(tmp_path))
    [why] = result.damaged
    assert why.startswith(f"{path.name}: ")
    assert (tmp_path / "unreadable" / f"trajectories-{path.name}").stat().st_size == 100
    assert len(rows(tmp_path)) == 9


def test_readable_rows_of_a_damaged_file_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "GROUP_BYTES", 100)
    ten_files(tmp_path)
    compact(trajectories(tmp_path))
    [path] = parquet_files(trajectories(tmp_path))
    file = pq.ParquetFile(str(path))
    assert file.metadata.num_row_groups == 10
    spoiled = bytearray(path.read_bytes())
    ids = file.metadata.row_group(4).column(2)
    spoiled[ids.dictionary_page_offset + ids.total_compressed_size - 1] ^= 0xFF
    path.write_bytes(spoiled)
    write(tmp_path, entry(20, 20))
    compact(trajectories(tmp_path), everything=True)
    numbers = [n for n in range(10) if n != 4] + [20]
    assert [row[0] for row in rows(tmp_path)] == [run_id(n) for n in numbers]


def test_a_second_concurrent_compaction_is_refused(tmp_path: Path) -> None:
    ten_files(tmp_path)
    with compaction_lock(tmp_path), pytest.raises(AlreadyCompacting, match="another process"):
        compact(trajectories(tmp_path))
    assert compact(trajectories(tmp_path)).files == 10


def test_a_stalled_recorder_is_reported_and_the_table_left_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "LOCK_SECONDS", 0.05)
    ten_files(tmp_path)
    lock = os.open(trajectories(tmp_path), os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="a recorder has held the lock"):
            compact(trajectories(tmp_path))
    finally:
        os.close(lock)
    assert len(parquet_files(trajectories(tmp_path))) == 10
    assert list((tmp_path / "compaction").iterdir()) == []


def test_a_file_system_that_cannot_exchange_folders_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(first: Path, second: Path) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(compaction, "exchange", refuse)
    ten_files(tmp_path)
    with pytest.raises(OSError, match="can't exchange two folders in one step"):
        compact(trajectories(tmp_path))
    assert len(rows(tmp_path)) == 10


def test_a_recorder_that_waits_for_the_lock_acquires_that_of_the_new_folder(
    tmp_path: Path,
) -> None:
    ten_files(tmp_path)
    old = FileLock(trajectories(tmp_path))
    compact(trajectories(tmp_path))
    old.acquire()
    assert os.stat(trajectories(tmp_path)).st_ino == trajectories(tmp_path).stat().st_ino
    with pytest.raises(BlockingIOError):
        FileLock(trajectories(tmp_path)).acquire()
    old.release()


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    ten_files(tmp_path)
    note = trajectories(tmp_path) / "notes.txt"
    note.write_text("mine")
    compact(trajectories(tmp_path))
    assert note.read_text() == "mine"


def test_a_stopped_compaction_keeps_its_finished_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MAX_FILES", 5)
    ten_files(tmp_path)
    steps: list[int] = []

    def progress(done: int, total: int) -> None:
        assert total == 10
        steps.append(done)

    result = compact(
        trajectories(tmp_path),
        everything=True,
        stop=lambda: steps[-1] == 5,
        on_progress=progress,
    )
    assert (result.files, steps) == (5, [0, 5])
    assert len(parquet_files(trajectories(tmp_path))) == 6
    assert len(rows(tmp_path)) == 10


class Killed(BaseException):
    """A stand-in for kill -9: no following code runs."""


STEP = st.one_of(
    st.tuples(
        st.just("write"),
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), min_size=1, max_size=4),
    ),
    st.tuples(st.just("again"), st.integers(0, 30)),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("killed"), st.integers(0, 12)),
)


def compact_killed(store: Path, line: int) -> None:
    """Run a compaction whose process ends at its `line`-th system call."""
    calls = 0

    def before(call: object) -> object:
        def counted(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls > line:
                raise Killed
            return call(*arguments, **options)  # pyright: ignore[reportCallIssue, reportUnknownVariableType]

        return counted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "exchange", before(compaction.exchange))
        patch.setattr(compaction, "flush", before(compaction.flush))
        patch.setattr(compaction, "write_sorted", before(compaction.write_sorted))
        patch.setattr(compaction.os, "link", before(os.link))
        patch.setattr(compaction.shutil, "rmtree", before(compaction.shutil.rmtree))
        patch.setattr(compaction, "_empty", before(compaction._empty))  # pyright: ignore[reportPrivateUsage]
        try:
            compact(trajectories(store))
        except Killed:
            return


@settings(max_examples=120, deadline=None)
@given(st.lists(STEP, max_size=14))
@pytest.mark.slow
def test_any_order_of_writes_compactions_and_crashes_leaves_the_same_rows(
    steps: list[tuple[str, object]],
) -> None:
    """The rows equal those of a store that was never compacted, in which only the last entry of
    each run and generation counts."""
    with TemporaryDirectory() as folder:
        store = Path(folder)
        entries: list[tuple[str, dict[bytes, bytes]]] = []
        for kind, value in steps:
            match kind, value:
                case "write", list():
                    batch = [
                        entry(len(entries) + at + 1, number, generation)
                        for at, (number, generation) in enumerate(value)
                    ]
                    write(store, *batch)
                    entries += batch
                case "again", int():
                    if entries:
                        write(store, *entries[value % len(entries) :][:3])
                case "compact", bool():
                    compact(trajectories(store), everything=value)
                case "killed", int():
                    compact_killed(store, value)
                case _:
                    raise AssertionError(kind)
            if entries:
                listed = [(run, generation) for run, generation, _ in rows(store)]
                assert set(listed) == {(run, gen) for run, gen, _ in last_recorded(entries)}
                for run in {run for run, _ in listed}:
                    newest = max(gen for name, gen in listed if name == run)
                    body = find_run_rows(trajectories(store), run).newest
                    assert body == f"{int(run[-12:])}/{newest}"
        compact(trajectories(store), everything=True)
        assert rows(store) == last_recorded(entries)


async def test_a_recorder_forgets_the_files_that_a_compaction_replaced(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    for place in range(1, 9):
        await table.write([entry(place, place)])
    compact(trajectories(tmp_path))
    await table.write([entry(9, 9)])
    # A file written meanwhile is noticed with the next batch.
    assert len(vars(table)["_known"]) == len(parquet_files(trajectories(tmp_path))) - 1
    await table.write([entry(3, 3), entry(9, 9)])
    assert len(rows(tmp_path)) == 9
