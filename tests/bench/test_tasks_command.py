"""`bench tasks`: problems of code and mathematics as a file of tasks to train on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loopline.agents.environments.code import AssertionTest, CodeProblem, CodeTest, ProgramTest
from loopline.agents.environments.code.team import CodeInstance
from loopline.agents.records import JsonObject
from loopline.bench.datasets import Request
from loopline.bench.registry import load
from loopline.trainers.data.task_files import read_tasks
from loopline.workers.judging.problems import ProblemFolder
from tests.bench.command_line import bench


@pytest.fixture(autouse=True)
def problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProblemFolder:
    """The judge's folder of problems."""
    monkeypatch.setenv("LOOPLINE_STATE", str(tmp_path / "state"))
    return ProblemFolder(tmp_path / "state" / "problems")


def write_mbpp(folder: Path, *ids: int) -> Path:
    rows = [
        {
            "task_id": number, "text": f"Write a function to add {number}.",
            "code": f"def f(n):\n    return n + {number}\n",
            "test_list": [f"assert f({argument}) == {number + argument}" for argument in (1, 2, 3)],
            "test_setup_code": "", "challenge_test_list": [f"assert f(-1) == {number - 1}"],
        }
        for number in ids
    ]  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "mbpp.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_file_contains_the_problems_of_the_bench_and_the_judge_knows_them(
    tmp_path: Path, problems: ProblemFolder
) -> None:
    data, path = write_mbpp(tmp_path / "data", 500, 601, 602, 700), tmp_path / "mbpp.jsonl"
    process = bench("tasks", "mbpp", str(path), "--data", str(data), "--setting", "turns=3")
    assert process.returncode == 0, process.stderr
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert process.stdout == (
        f"3 tasks of mbpp, train in {path}, sha256 {sha256}; hidden tests and gold answers are in "
        f"{problems.path}\n"
    )
    task_file = read_tasks(path)
    assert (task_file.about.sha256, task_file.about.team) == (sha256, ("coder", "tester"))
    choices: JsonObject = {"dataset": "mbpp", "setting": {"turns": 3}}
    items = load("code", Request("train", data=data, choices=choices)).items
    for task, item in zip(task_file.tasks, items, strict=True):
        problem = problems.code(str(task.instance["judged_as"]))
        assert (task.prompt, problem.statement) == (item.question,) * 2
        assert item.about["problem"] == problem.id


def test_a_training_on_mbpp_is_rewarded_by_hidden_assertions(
    tmp_path: Path, problems: ProblemFolder
) -> None:
    """Otherwise a lookup table of the shown assertions would earn everything. For measurement, all
    three are shown."""
    data, path = write_mbpp(tmp_path / "data", 601), tmp_path / "mbpp.jsonl"
    assert bench("tasks", "mbpp", str(path), "--data", str(data)).returncode == 0
    (task,) = read_tasks(path).tasks
    problem = problems.code(str(task.instance["judged_as"]))
    assert sources(problem.examples) == ["assert f(1) == 602"]
    assert sources(problem.tests) == [
        "assert f(2) == 603", "assert f(3) == 604", "assert f(-1) == 600",
    ]  # fmt: skip
    question = CodeInstance.model_validate(task.instance).question
    assert (question.examples, question.function) == (problem.examples, "f")
    choices: JsonObject = {"dataset": "mbpp"}
    (measured,) = load("code", Request("train", data=data, choices=choices)).problems
    assert isinstance(measured, CodeProblem)
    published = [f"assert f({n}) == {601 + n}" for n in (1, 2, 3)]
    assert sources(measured.examples) == sources(measured.tests) == published


def sources(tests: Sequence[CodeTest]) -> list[str]:
    return [test.source for test in tests if isinstance(test, AssertionTest)]


def test_a_training_on_code_contests_is_rewarded_by_hidden_tests(
    tmp_path: Path, problems: ProblemFolder
) -> None:
    """A problem without hidden tests teaches nothing, and is reported."""
    public, private = ({"input": [f"{n}\n"], "output": [f"{2 * n}\n"]} for n in (1, 2))
    nothing: JsonObject = {"input": [], "output": []}
    rows = [
        {
            "name": name, "description": f"Double: {name}.", "public_tests": public,
            "private_tests": hidden, "generated_tests": nothing,
            "solutions": {"language": [], "solution": []}, "difficulty": 7, "time_limit": None,
            "memory_limit_bytes": 0, "input_file": "", "output_file": "",
        }
        for name, hidden in (("a", private), ("b", nothing), ("c", public))
    ]  # fmt: skip
    folder = tmp_path / "code_contests" / "data"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "train-00000-of-00001.parquet")
    path = tmp_path / "tasks.jsonl"
    process = bench("tasks", "codecontests", str(path), "--data", str(tmp_path))
    assert process.returncode == 0, process.stderr
    code_problems = [
        problems.code(str(problem.instance["judged_as"])) for problem in read_tasks(path).tasks
    ]
    texts = {
        problem.statement: [test.stdin for test in problem.tests if isinstance(test, ProgramTest)]
        for problem in code_problems
    }
    assert texts == {"Double: a.": ["2\n"]}
    assert "(2 records left out: a problem that shows all of its tests" in process.stdout


def test_generated_word_problems_come_from_the_train_split_and_the_seed(
    tmp_path: Path, problems: ProblemFolder
) -> None:
    def prompts(seed: int) -> list[str]:
        path = tmp_path / "sums.jsonl"
        process = bench("tasks", "wordproblems", str(path), "--samples", "4", "--seed", str(seed))
        assert process.returncode == 0, process.stderr
        tasks = read_tasks(path).tasks
        assert all("wordproblems/train/" in str(task.instance["question"]) for task in tasks)
        assert all(problems.math(str(task.instance["judged_as"])).answer for task in tasks)
        return [task.prompt for task in tasks]

    assert prompts(1) == prompts(1)
    assert prompts(1) != prompts(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("humaneval",),
            "humaneval is a test set, reserved for measuring; data sets for training: gsm",
        ),
        (
            ("livecodebench", "--split", "test2"),
            "livecodebench is a test set, reserved for measuring",
        ),
        (("aime24",), "aime24 is a test set, reserved for measuring"),
        (("olympiadbench",), "olympiadbench is a test set, reserved for measuring"),
        (("mbpp", "--split", "test"), "--split test: only the split train of mbpp is for training"),
        (
            ("wordproblems", "--split", "new_numbers"),
            "--split new_numbers: only the split train of wordproblems",
        ),
        (("chess",), "there is no data set 'chess' here; there are: humaneval, mbpp"),
        (("wordproblems", "--setting", "turns=0"), "--setting turns: Input should be greater"),
        (("wordproblems", "--setting", "team=coder"), "--setting team: the tasks are for both"),
        (("wordproblems", "--samples", "0"), "--samples must lie between 1 and"),
    ],
)
def test_measurement_data_and_invalid_options_are_refused_and_nothing_is_written(
    tmp_path: Path, problems: ProblemFolder, arguments: tuple[str, ...], message: str
) -> None:
    name, *options = arguments
    process = bench("tasks", name, str(tmp_path / "tasks.jsonl"), *options)
    assert process.returncode == 2
    assert message in process.stderr
    assert not (tmp_path / "tasks.jsonl").exists()
    assert not problems.path.exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/tasks.jsonl", "none/tasks.jsonl is in a folder that does not exist"),
        (".", " is a folder: give the file to write"),
    ],
)
def test_an_unwritable_file_is_reported(
    tmp_path: Path, problems: ProblemFolder, name: str, message: str
) -> None:
    process = bench("tasks", "wordproblems", str(tmp_path / name), "--samples", "1")
    assert process.returncode == 1
    assert message in process.stderr
    assert not problems.path.exists()


@pytest.mark.skipif("LOOPLINE_DATA" not in os.environ, reason="LOOPLINE_DATA is not set")
@pytest.mark.parametrize(
    ("dataset", "count"), [("gsm8k", 7_473), ("mbpp", 374), ("mbpp_sanitized", 120), ("apps", 2)]
)
def test_published_training_splits_are_tasks_that_a_loop_can_play(
    tmp_path: Path, dataset: str, count: int
) -> None:
    path = tmp_path / "tasks.jsonl"
    process = bench("tasks", dataset, str(path))
    assert process.returncode == 0, process.stderr
    assert read_tasks(path).about.count == count
