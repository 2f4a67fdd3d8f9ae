"""`runtime store stats|compact|verify|sql`: a store is counted, compacted, checked and queried."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from loopline.runtime.cli import app
from loopline.runtime.errors import InputError
from loopline.runtime.observe.recorded_runs import from_store
from loopline.trainers.data.store import read_trajectories
from loopline.workers.store import compaction
from loopline.workers.store.compaction import compaction_lock
from loopline.workers.store.files import parquet_files
from loopline.workers.store.verification import PROGRESS, verify
from tests.trainers.grpo.recorded import a_run, record


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for number in range(6):
        asyncio.run(record(tmp_path, [a_run(number)], batch=number + 1))
    return tmp_path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, arguments)])


def printed(*arguments: object) -> Any:
    result = invoke(*arguments, "--json")
    return json.loads(result.stdout)


def spoil(store: Path, number: int) -> Path:
    path = parquet_files(store / "trajectories")[number]
    path.write_bytes(path.read_bytes()[:-20])
    return path


def test_stats_count_files_and_rows(store: Path) -> None:
    table = printed("stats", "--store", store)["tables"]["trajectories"]
    assert (table["files"], table["rows"], table["first"], table["last"]) == (6, 6, 0.001, 0.006)
    assert "trajectories      6     6" in invoke("stats", "--store", store).stdout


def test_after_a_compaction_every_run_is_shown_and_read_as_before(store: Path) -> None:
    before = read_trajectories(store, None)
    result = printed("compact", "--store", store)
    assert (result["trajectories"]["files"], result["trajectories"]["into"]) == (6, 1)
    assert read_trajectories(store, None) == before
    for trajectory in before.records:
        assert from_store(store, trajectory.run.id) == trajectory


def test_a_compaction_names_the_damaged_file_that_it_sets_aside(store: Path) -> None:
    path = spoil(store, 2)
    output = invoke("compact", "--store", store).stdout
    assert f"set aside: {path.name}" in output
    assert len(read_trajectories(store, None).records) == 5


def test_verify_sets_a_damaged_file_aside_and_exits_with_1(store: Path) -> None:
    path = spoil(store, 2)
    result = invoke("verify", "--store", store)
    assert result.exit_code == 1
    assert f"set aside: trajectories/{path.name}" in result.stdout
    assert (store / "unreadable" / f"trajectories-{path.name}").exists()
    assert invoke("verify", "--store", store).exit_code == 0
    assert len(read_trajectories(store, None).records) == 5


def test_verify_sets_a_damaged_file_of_another_program_aside_too(store: Path) -> None:
    (store / "trajectories" / "cut.parquet").write_bytes(b"PAR1")
    assert invoke("verify", "--store", store).exit_code == 1
    assert (store / "unreadable" / "trajectories-cut.parquet").read_bytes() == b"PAR1"
    assert len(read_trajectories(store, None).records) == 6


def test_verify_reports_a_changed_record_and_keeps_it(store: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = parquet_files(store / "trajectories")[0]
    table = pq.read_table(str(path))
    at = table.schema.get_field_index("sha256")
    pq.write_table(table.set_column(at, "sha256", pa.array(["0" * 64])), path)
    result = invoke("verify", "--store", store)
    assert result.exit_code == 1
    assert f"changed since it was written: trajectories/{path.name}[0]" in result.stdout
    assert path.exists()


def test_a_stopped_verification_resumes_where_it_stopped(store: Path) -> None:
    looked: list[int] = []
    stopped = verify(
        store, stop=lambda: looked[-1] == 4, on_progress=lambda done, _: looked.append(done)
    )
    assert (stopped.files, stopped.complete) == (4, False)
    assert (store / PROGRESS).exists()
    assert verify(store).files == 2
    assert not (store / PROGRESS).exists()


def test_ctrl_c_stops_a_compaction_after_the_current_step(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MAX_FILES", 2)
    exchange = compaction.exchange

    def interrupted(first: Path, second: Path) -> None:
        exchange(first, second)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(compaction, "exchange", interrupted)
    result = invoke("compact", "--store", store, "--json")
    assert result.exit_code == 130
    assert json.loads(result.stdout)["complete"] is False
    assert len(parquet_files(store / "trajectories")) == 5
    monkeypatch.setattr(compaction, "exchange", exchange)
    assert printed("compact", "--store", store)["complete"] is True
    assert len(read_trajectories(store, None).records) == 6


def test_a_store_that_another_process_compacts_is_an_error(store: Path) -> None:
    with compaction_lock(store):
        for command in ("compact", "verify"):
            result = invoke(command, "--store", store)
            assert isinstance(result.exception, InputError)
            assert "another process" in str(result.exception)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    result = invoke("stats", "--store", tmp_path / "nowhere")
    assert "there is no store in" in str(result.exception)


def test_the_views_of_duckdb_show_each_run_once_and_all_its_generations(store: Path) -> None:
    pytest.importorskip("duckdb")
    replayed = a_run(3, workflow="solo")
    asyncio.run(record(store, [replayed], batch=20))
    asyncio.run(record(store, [replayed], batch=30))
    query = "SELECT count(*) AS n FROM "
    assert printed("sql", query + "trajectories", "--store", store) == [{"n": 6}]
    assert printed("sql", query + "generations", "--store", store) == [{"n": 6}]
    invoke("compact", "--store", store)
    files = store / "trajectories" / "*.parquet"
    plain = f"{query} read_parquet('{files}')"
    assert printed("sql", plain, "--store", store) == [{"n": 6}]
    workflow = f"SELECT workflow FROM trajectories WHERE run_id = '{replayed.run.id}'"
    assert printed("sql", workflow, "--store", store) == [{"workflow": "solo"}]


def test_an_invalid_statement_is_one_error(store: Path) -> None:
    pytest.importorskip("duckdb")
    result = invoke("sql", "SELECT nothing FROM nowhere", "--store", store)
    assert isinstance(result.exception, InputError)
