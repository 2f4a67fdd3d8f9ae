"""The list of recorded runs: each run once, the newest first, and a page reads few rows."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.bench.proofs.store.rows import BEGAN_MS, BETWEEN_MS, run_id, write_runs
from loopline.runtime.observe.recorded_index import (
    NEWEST,
    RecordedPage,
    recorded_page,
    recorded_runs,
)
from loopline.runtime.observe.run_index import RunQuery
from loopline.workers.recorder import TRAJECTORY_SCHEMA
from loopline.workers.store import newest_runs
from loopline.workers.store.compaction import compact
from loopline.workers.store.files import FileName, Place, parquet_files
from loopline.workers.store.newest_runs import NewestRuns
from loopline.workers.store.records import iterate_trajectories

RUNS, BATCH, SEED = 600, 10, 7
IDS = [run_id(number, SEED) for number in range(RUNS)]


def page(
    runs: NewestRuns,
    count: int = 20,
    after: str = NEWEST,
    query: RunQuery | None = None,
    listed: Sequence[str] = (),
) -> RecordedPage:
    async def is_listed(ids: Sequence[str]) -> list[bool]:
        return [run in listed for run in ids]

    return asyncio.run(recorded_page(runs, query or RunQuery(), count, after, is_listed))


def pages(runs: NewestRuns, query: RunQuery | None = None, count: int = 70) -> list[str]:
    """The ids on all pages."""
    ids, place = list[str](), NEWEST
    while place is not None:
        got = page(runs, count, place, query)
        ids += [line.id for line in got.lines]
        place = got.next_page
    return ids


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    write_runs(folder / "trajectories", RUNS, SEED, BATCH)
    return folder


@pytest.fixture
def small_files(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture(params=["in small files", "compacted"])
def store(request: pytest.FixtureRequest, small_files: Path, monkeypatch: Any) -> Path:
    tmp_path = small_files
    if request.param == "compacted":
        monkeypatch.setattr("loopline.workers.store.compaction.GROUP_BYTES", 200_000)
        compact(tmp_path / "trajectories", everything=True)
    return tmp_path


def test_a_page_reads_only_the_rows_around_its_place_and_opens_no_file_twice(store: Path) -> None:
    runs, files = recorded_runs(store), len(parquet_files(store / "trajectories"))
    largest = max(
        pq.ParquetFile(path).metadata.row_group(group).num_rows
        for path in parquet_files(store / "trajectories")
        for group in range(pq.ParquetFile(path).num_row_groups)
    )
    for place, expected in ((NEWEST, IDS[-20:]), (IDS[300], IDS[280:300]), (IDS[5], IDS[:5])):
        before = runs.rows_read
        lines = page(runs, 20, place).lines
        assert [line.id for line in reversed(lines)] == expected
        # Runs are checked in batches; a row group may be added at either end.
        assert runs.rows_read - before <= 200 + 2 * largest
        assert runs.opened == files


def test_all_pages_together_list_every_run_once(store: Path) -> None:
    assert pages(recorded_runs(store)) == IDS[::-1]


def test_runs_that_another_list_has_are_replaced_by_older_ones(store: Path) -> None:
    lines = page(recorded_runs(store), 20, listed=IDS[-250:]).lines
    assert [line.id for line in lines] == IDS[-251:-271:-1]


def test_words_are_searched_in_questions_and_answers(store: Path) -> None:
    runs = {run.run.id: run for run in iterate_trajectories(store, None, [])}
    words = "b HAS"
    expected = [run for run in reversed(IDS) if "B has" in (runs[run].run.task.prompt or "")]
    assert expected
    assert pages(recorded_runs(store), RunQuery(words=words)) == expected
    answer = runs[IDS[0]].answer or ""
    assert IDS[0] in pages(recorded_runs(store), RunQuery(words=answer))


def test_a_search_in_the_past_does_not_read_later_runs(small_files: Path) -> None:
    runs, middle = recorded_runs(small_files), (BEGAN_MS + 300 * BETWEEN_MS) / 1000
    assert len(pages(runs, RunQuery(until=middle - 10))) < 60
    assert runs.rows_read < 150


def test_a_page_ends_after_a_limit_of_rows_and_the_next_continues_after_them(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.runtime.observe.recorded_index.MAX_LOOKED", 50)
    first = page(recorded_runs(store), query=RunQuery(workflow="another"))
    assert (first.lines, first.next_page) == ([], IDS[-50])
    assert pages(recorded_runs(store), RunQuery(workflow="another")) == []


def test_paging_continues_after_a_compaction_replaces_the_files(small_files: Path) -> None:
    runs = recorded_runs(small_files)
    first = page(runs)
    compact(small_files / "trajectories", everything=True)
    assert first.next_page is not None
    assert [line.id for line in page(runs, 20, first.next_page).lines] == IDS[-21:-41:-1]


def test_a_damaged_file_hides_only_its_own_runs(small_files: Path) -> None:
    parquet_files(small_files / "trajectories")[-2].write_bytes(b"PAR1 no more")
    assert pages(recorded_runs(small_files)) == [*IDS[:-11:-1], *IDS[-21::-1]]


keys = st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(1, 99))
"""Run, generation and entry."""


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(keys, min_size=1, max_size=5), min_size=1, max_size=5), st.integers(0, 10))
def test_only_the_newest_of_several_ends_of_a_run_is_listed(
    files: list[list[tuple[int, int, int]]], below: int
) -> None:
    def row(run: int, generation: int, entry: int) -> dict[str, Any]:
        body = f"{run}/{generation}"
        return {
            "run_id": f"{run:02d}", "generation": generation, "entry": f"{entry}-0",
            "created": float(run), "trajectory": body,
            "sha256": hashlib.sha256(body.encode()).hexdigest(),
        }  # fmt: skip

    newest = {run: (generation, entry) for run, generation, entry in sorted(chain(*files))}
    with tempfile.TemporaryDirectory() as folder:
        for number, rows in enumerate(files):
            table = pa.Table.from_pylist([row(*key) for key in rows], schema=TRAJECTORY_SCHEMA)
            name = FileName(number, Place(1, 0), Place(99, 0), len(rows))
            pq.write_table(table, Path(folder) / str(name), row_group_size=2)
        got = [
            (row.facts["run_id"], row.facts["generation"], row.facts["entry"])
            for row in newest_runs.NewestRuns(Path(folder)).below(f"{below:02d}")
        ]
    assert got == [
        (f"{run:02d}", newest[run][0], f"{newest[run][1]}-0")
        for run in sorted(newest, reverse=True)
        if run < below
    ]
