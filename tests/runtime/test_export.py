"""`runtime export`: recorded runs in the formats of trainers and evaluation tools."""

from __future__ import annotations

import asyncio
import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from loopline.agents.records import Message, Outcome, Trajectory
from loopline.runtime.cli import app
from loopline.runtime.errors import InputError, UserError
from loopline.runtime.interchange.exports import SCHEMA, export
from loopline.workers.store.files import parquet_files
from tests.clients.foreign_reader import read_by_inspect
from tests.runtime.trl_steps import train_a_step
from tests.trainers.grpo.recorded import a_candidate, a_run, a_step, record
from tests.trainers.test_posted_rewards import record_rewards, reward

SYSTEM = Message(role="system", content="Be brief.")
QUESTION = Message(role="user", content="What is it?")


def answered(
    number: int,
    answer: str | None,
    outcome: Outcome = Outcome.ANSWERED,
    *,
    workflow: str = "solo",
    instance: int = 0,
) -> Trajectory:
    run = a_run(number, a_step([a_candidate(0.0)]), workflow=workflow, instance=instance)
    return run.model_copy(update={"answer": answer, "outcome": outcome})


def in_conversation(run: Trajectory) -> Trajectory:
    task = run.run.task.model_copy(update={"messages": (SYSTEM, QUESTION)})
    return run.model_copy(update={"run": run.run.model_copy(update={"task": task})})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three runs of one task with different rewards, one of another task, one without an answer."""
    runs = [
        answered(1, "No.", Outcome.FAILED),
        answered(2, "Yes.", Outcome.SOLVED),
        answered(3, "Maybe."),
        in_conversation(answered(4, "A bus.", instance=7, workflow="agent")),
        answered(5, None, Outcome.DEADLINE, instance=8),
    ]
    asyncio.run(record(tmp_path / "store", runs))
    half = reward(0.5, run_id=runs[2].run.id)
    asyncio.run(record_rewards(tmp_path / "store", half))
    return tmp_path / "store"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_trl_gets_prompts_and_completions_as_messages(store: Path, tmp_path: Path) -> None:
    exported = export(store, "trl", tmp_path / "out")
    assert (exported.runs, exported.left_out) == (5, 1)
    assert exported.files == {
        tmp_path / "out" / "sft.jsonl": 4,
        tmp_path / "out" / "preferences.jsonl": 1,
    }
    by_answer = {
        row["completion"][0]["content"]: row["prompt"]
        for row in rows(tmp_path / "out" / "sft.jsonl")
    }
    assert by_answer["A bus."] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is it?"},
    ]


def test_preferences_pair_the_best_run_of_a_task_with_the_worst(
    store: Path, tmp_path: Path
) -> None:
    export(store, "trl", tmp_path / "out")
    (pair,) = rows(tmp_path / "out" / "preferences.jsonl")
    assert pair["chosen"] == [{"role": "assistant", "content": "Yes."}]
    assert pair["rejected"] == [{"role": "assistant", "content": "No."}]


def test_a_posted_reward_replaces_the_outcome(store: Path, tmp_path: Path) -> None:
    asyncio.run(record_rewards(store, reward(5.0), reward(0.25, agent="solo"), batch=2))
    export(store, "verifiers", tmp_path / "out")
    by_run = {
        row["info"]["run_id"]: row["reward"] for row in rows(tmp_path / "out" / "rollouts.jsonl")
    }
    assert [by_run[a_run(number).run.id] for number in (1, 2, 4)] == [5.25, 1.0, None]


def test_rollouts_have_the_columns_of_verifiers(store: Path, tmp_path: Path) -> None:
    export(store, "verifiers", tmp_path / "out", "agent")
    (row,) = rows(tmp_path / "out" / "rollouts.jsonl")
    assert set(row) == {
        "example_id", "prompt", "completion", "answer", "reward", "task", "info",
    }  # fmt: skip
    assert (row["task"], row["info"]["workflow"]) == ("test", "agent")


def test_a_data_set_has_a_row_for_each_run_and_a_card(store: Path, tmp_path: Path) -> None:
    export(store, "hf", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "data")
    assert table.schema.equals(SCHEMA)
    assert table.num_rows == 5
    assert sorted(table["reward"].to_pylist(), key=str) == [0.0, 0.5, 1.0, None, None]
    assert "path: data/train-*.parquet" in (tmp_path / "out" / "README.md").read_text()


def test_datasets_loads_the_folder(store: Path, tmp_path: Path) -> None:
    datasets: Any = pytest.importorskip("datasets", reason="needs make test, which installs it")
    export(store, "hf", tmp_path / "out")
    with warnings.catch_warnings(action="ignore"):
        loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"].num_rows == 5
    row = next(row for row in loaded["train"] if row["workflow"] == "agent")
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]


@pytest.mark.slow
def test_trl_trains_a_step_on_the_exported_rows(store: Path, tmp_path: Path) -> None:
    export(store, "trl", tmp_path / "out")
    rows = tmp_path / "out" / "sft.jsonl"
    train_a_step("SFT", rows, tmp_path, per_device_train_batch_size=2, max_length=64)


@pytest.mark.slow
def test_inspect_reads_the_runs_as_samples(store: Path, tmp_path: Path) -> None:
    export(store, "inspect", tmp_path / "out")
    log = read_by_inspect(tmp_path / "out" / "runs.eval")
    by_id = {sample["id"]: sample for sample in log["samples"]}
    assert len(by_id) == 5
    assert by_id[a_run(2).run.id]["scores"] == {"reward": 1.0}
    assert by_id[a_run(2).run.id]["tokens"] == {"micro": 5}
    assert by_id[a_run(4).run.id]["roles"] == ["system", "user", "assistant"]
    assert by_id[a_run(5).run.id]["error"] == "deadline: no answer"


def test_a_damaged_file_is_reported_and_the_others_are_exported(
    store: Path, tmp_path: Path
) -> None:
    asyncio.run(record(store, [answered(9, "Late.")], batch=2))
    path = parquet_files(store / "trajectories")[1]
    path.write_bytes(path.read_bytes()[:-20])
    exported = export(store, "trl", tmp_path / "out")
    assert exported.runs == 5
    assert [skipped.where for skipped in exported.skipped] == [path.name]


def test_a_store_without_matching_runs_is_an_error(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run of workflow 'umi' that can be read"):
        export(store, "trl", tmp_path / "out", "umi")
    with pytest.raises(InputError, match="holds no recorded runs"):
        export(tmp_path / "nothing", "hf", tmp_path / "out")


def test_a_folder_that_cannot_be_created_is_an_error(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        export(store, "trl", tmp_path / "file")


def test_the_command_counts_the_exported_runs(store: Path, tmp_path: Path) -> None:
    words = ["export", str(tmp_path / "out"), "--format", "trl", "--store", str(store)]
    result = CliRunner().invoke(app, [*words, "--json"])
    line = json.loads(result.stdout)
    assert (line["runs"], line["left_out"], line["unreadable"]) == (5, 1, 0)
    assert "1 run without an answer left out" in CliRunner().invoke(app, words).stdout
