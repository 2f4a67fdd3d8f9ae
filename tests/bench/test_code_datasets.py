"""Reading HumanEval, MBPP, APPS, CodeContests and LiveCodeBench as published, and the reports about
unreadable records."""

from __future__ import annotations

import base64
import json
import lzma
import os
import pickle
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.environments.code import AssertionTest, CallTest, CodeProblem, ProgramTest
from loopline.bench.datasets import (
    apps,
    apps_selected,
    code_contests,
    humaneval,
    livecodebench,
    mbpp,
)
from loopline.bench.datasets.gsm8k import VARIABLE
from loopline.bench.errors import DataError, UsageError
from loopline.trainers.data.json_files import Reading

needs_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not point to the published data"
)

PROMPT = 'import math\n\ndef half(n):\n    return n / 2\n\ndef f(n):\n    """Half of n."""\n'
HUMANEVAL = {
    "task_id": "HumanEval/0", "prompt": PROMPT, "entry_point": "f",
    "canonical_solution": "    return n / 2\n",
    "test": "def check(candidate):\n    assert candidate(4) == half(4)\n",
}  # fmt: skip
MBPP = {
    "text": "Half.", "code": "def f(n):\r\n    return n / 2", "task_id": 7,
    "test_setup_code": "", "test_list": ["assert f(4) == 2", "assert f(2) == 1"],
    "challenge_test_list": [],
}  # fmt: skip
APPS = {
    "name": "12", "description": "Twice.", "difficulty": "interview", "id": 1,
    "test_list": [{"input": "1\n", "output": ["2\n"]}], "sample_io": [], "starter_code": "",
}  # fmt: skip


def write(path: Path, *rows: Any) -> None:
    """JSON lines; a text is written unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")


def reasons(reading: Reading[CodeProblem]) -> list[tuple[str, str]]:
    """The location and reason of each skipped record."""
    return [(skip.where, skip.reason) for skip in reading.skipped]


@needs_data
@pytest.mark.parametrize(
    ("load", "problems", "tests", "kind"),
    [
        (humaneval.load, 164, 164, AssertionTest),
        (lambda: mbpp.load("full"), 974, 2_922, AssertionTest),
        (lambda: mbpp.load("sanitized"), 427, 1_324, AssertionTest),
        (code_contests.load, 165, 1_837, ProgramTest),
    ],
    ids=["HumanEval", "MBPP", "MBPP sanitized", "CodeContests"],
)
def test_a_data_set_is_read_completely(
    load: Callable[[], Reading[CodeProblem]], problems: int, tests: int, kind: type
) -> None:
    """As many as published, without a skipped record or a duplicate id."""
    read = load()
    assert (len(read.records), read.skipped) == (problems, ())
    assert len({problem.id for problem in read.records}) == problems
    all_tests = [test for problem in read.records for test in problem.tests]
    assert (len(all_tests), {type(test) for test in all_tests}) == (tests, {kind})


@needs_data
def test_apps_selected_problems_are_128_and_22_repeats() -> None:
    """150 rows, as published: 98 of them call a function, 52 run a program."""
    read = apps_selected.load()
    assert len(read.records) == 128
    assert [skip.reason for skip in read.skipped] == ["a duplicate problem"] * 22
    kinds = {problem.id: type(problem.tests[0]) for problem in read.records}
    repeated = [kinds[f"apps/{skip.detail}"] for skip in read.skipped]
    assert Counter([*kinds.values(), *repeated]) == {CallTest: 98, ProgramTest: 52}


@needs_data
def test_apps_training_folders_are_read_completely() -> None:
    """Five, two of which call a function, all with solutions."""
    read = apps.load("train")
    assert (len(read.records), read.skipped) == (5, ())
    assert all(problem.solutions for problem in read.records)
    assert sum(isinstance(problem.tests[0], CallTest) for problem in read.records) == 2


@needs_data
def test_40_problems_of_code_contests_have_a_single_test() -> None:
    """All of them have a time limit, from half a second to ten."""
    problems = code_contests.load().records
    assert sum(len(problem.tests) == 1 for problem in problems) == 40
    seconds = [problem.wall_seconds for problem in problems if problem.wall_seconds]
    assert (len(seconds), min(seconds), max(seconds)) == (165, 0.5, 10)


def test_a_problem_of_humaneval_keeps_its_helpers_on_the_judge_s_side(tmp_path: Path) -> None:
    """Only the requested function comes from the program."""
    write(tmp_path / "HumanEval.jsonl", HUMANEVAL)
    (problem,) = humaneval.load(tmp_path).records
    assert (problem.id, problem.names) == ("humaneval/0", ("f",))
    # A program that only defines the function may use them as well.
    assert problem.preamble == "import math\ndef half(n):\n    return n / 2"
    assert problem.starter_code == problem.setup == PROMPT
    assert problem.solutions == (PROMPT + "    return n / 2\n",)
    (test,) = problem.tests
    assert isinstance(test, AssertionTest)
    assert test.source.endswith("\ncheck(f)")


def test_unreadable_humaneval_lines_are_reported(tmp_path: Path) -> None:
    write(
        tmp_path / "HumanEval.jsonl",
        HUMANEVAL, "{", {**HUMANEVAL, "task_id": "x"}, {**HUMANEVAL, "prompt": "def f(:"},
    )  # fmt: skip
    assert reasons(humaneval.load(tmp_path)) == [
        ("HumanEval.jsonl:2", "not JSON"),
        ("HumanEval.jsonl:3", "not the expected fields"),
        ("HumanEval.jsonl:4", "the prompt is not Python"),
    ]


def test_mbpp_takes_from_a_program_only_what_its_solution_defines(tmp_path: Path) -> None:
    """Not `set`, `sorted` or the other functions that the assertions compare with."""
    code = "class Node: pass\ndef g(): pass\ndef sum(a): pass"
    tests = ["assert set(sum(Node())) == set((1,))"]
    write(tmp_path / "mbpp.jsonl", MBPP, {**MBPP, "task_id": 8, "code": code, "test_list": tests})
    first, second = mbpp.load("full", tmp_path).records
    assert (first.id, first.names, len(first.tests)) == ("mbpp/7", ("f",), 2)
    assert second.names == ("Node", "sum")


def test_unreadable_mbpp_records_are_reported(tmp_path: Path) -> None:
    """Both versions of the data set are read."""
    odd = [
        {**MBPP, "test_list": []},
        {**MBPP, "code": "g = 1"},
        {**MBPP, "test_list": ["assert ("]},
    ]
    write(tmp_path / "mbpp.jsonl", MBPP, *odd)
    assert reasons(mbpp.load("full", tmp_path)) == [
        ("mbpp.jsonl:2", "not the expected fields"),
        ("mbpp.jsonl:3", "the tests use nothing that the solution defines"),
        ("mbpp.jsonl:4", "a test is not Python"),
    ]
    clean = {"task_id": 7, "prompt": "Half.", "code": MBPP["code"], "test_imports": ["import math"],
             "test_list": MBPP["test_list"]}  # fmt: skip
    path = tmp_path / "sanitized-mbpp.json"
    write(path, json.dumps([clean, 3]))
    read = mbpp.load("sanitized", tmp_path)
    assert [(problem.id, problem.setup) for problem in read.records] == [
        ("mbpp_sanitized/7", "import math")
    ]
    assert reasons(read) == [("sanitized-mbpp.json[1]", "not the expected fields")]
    for text, reason in (("{}", "not the expected fields"), ("[", "not JSON")):
        path.write_text(text)
        assert reasons(mbpp.load("sanitized", tmp_path)) == [(path.name, reason)]


@pytest.mark.parametrize(
    ("starter", "inputs", "arguments"),
    [
        ("def f(n):\n\t", ["[1, 2]", "[3]"], [([1, 2],), ([3],)]),
        ("def f(a, b):\n\t", ["69\n'x'", "1\n2"], [(69, "x"), (1, 2)]),
        ("def f(pin):\n\t", ["1234", "12a4"], [("1234",), ("12a4",)]),
        ("def f(a, b=1):\n\t", ["13", "13\n3"], [(13,), (13, 3)]),
        ("def f(text, marks):\n\t", ["a #b\nc\n['#']"], [("a #b\nc", ["#"])]),
        ("def f(text):\n\t", ["two\nlines"], [("two\nlines",)]),
        ("import math\ndef f(n: int) -> int:\n", ["-1", "None"], [(-1,), (None,)]),
    ],
)
def test_the_arguments_of_apps_are_parsed_as_intended(
    tmp_path: Path, starter: str, inputs: list[str], arguments: list[tuple[Any, ...]]
) -> None:
    """Literals, texts without quotes, texts of several lines, optional arguments."""
    tests = [{"input": text, "output": [1]} for text in inputs]
    write(tmp_path / "selected150.jsonl", {**APPS, "starter_code": starter, "test_list": tests})
    (problem,) = apps_selected.load(tmp_path).records
    calls = [test for test in problem.tests if isinstance(test, CallTest)]
    assert [test.arguments for test in calls] == arguments


def test_two_problems_of_apps_mix_numbers_and_texts(tmp_path: Path) -> None:
    tests = [{"input": text, "output": [-1]} for text in ("-4", "a", "4.5")]
    row = {**APPS, "name": "3836", "starter_code": "def factors(x):\n\t", "test_list": tests}
    write(tmp_path / "selected150.jsonl", row)
    (problem,) = apps_selected.load(tmp_path).records
    calls = [test for test in problem.tests if isinstance(test, CallTest)]
    assert [test.arguments for test in calls] == [(-4,), ("a",), (4.5,)]


def test_unreadable_apps_rows_are_reported(tmp_path: Path) -> None:
    called = {**APPS, "starter_code": "def f(n):\n\t"}
    write(
        tmp_path / "selected150.jsonl",
        APPS, APPS, {**APPS, "name": "13", "starter_code": "x = 1"},
        {**APPS, "name": "14", "starter_code": "def f(:"},
        {**called, "name": "15", "test_list": []},
        {**called, "name": "16", "test_list": [{"input": "{1, 2}", "output": [1]}]},
    )  # fmt: skip
    assert reasons(apps_selected.load(tmp_path)) == [
        ("selected150.jsonl:2", "a duplicate problem"),
        ("selected150.jsonl:3", "the starter code is not a function"),
        ("selected150.jsonl:4", "the starter code is not Python"),
        ("selected150.jsonl:5", "not the expected fields"),
        ("selected150.jsonl:6", "not the expected fields"),
    ]


def test_unreadable_apps_folders_are_reported(tmp_path: Path) -> None:
    """A missing file, lists of different lengths, arguments that are not a list."""

    def folder(name: str, cases: Any, *, question: bool = True) -> None:
        write(tmp_path / f"train/{name}/input_output.json", json.dumps(cases))
        if question:
            (tmp_path / f"train/{name}/question.txt").write_text("Twice?")

    folder("0", {"inputs": ["1"], "outputs": ["2"]})
    folder("1", {"inputs": ["1"], "outputs": ["2"]}, question=False)
    folder("2", {"inputs": ["1"], "outputs": []})
    folder("3", {"inputs": ["1", "2"], "outputs": ["2"]})
    folder("4", {"fn_name": "f", "inputs": ["1"], "outputs": ["2"]})
    folder("5", {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[2], [4]]})
    folder("6", {"inputs": [["1", "2"]], "outputs": [["3"]]})
    read = apps.load("train", tmp_path)
    assert [problem.id for problem in read.records] == [
        "apps_train/0",
        "apps_train/5",
        "apps_train/6",
    ]
    assert read.records[1].tests[0] == CallTest(
        function="f", arguments=(1,), expected=[2], also_right=(2,)
    )
    assert read.records[2].tests[0] == ProgramTest(stdin="1\n2", stdout="3")
    assert reasons(read) == [
        ("train/1", "a file cannot be read"),
        ("train/2", "inputs and outputs differ in number"),
        ("train/3", "inputs and outputs differ in number"),
        ("train/4", "not the expected fields"),
    ]


def test_a_problem_of_code_contests_has_the_limits_that_its_text_states(tmp_path: Path) -> None:
    text = "Add.\n\nTime Limit: {'seconds': 2, 'nanos': 500000000}\nMemory Limit: 256000000 Bytes\n"
    tests = {"inputs": ["1 2"], "outputs": ["3"]}
    uneven = {"problem": text, "tests": {"inputs": ["1"], "outputs": ["1", "2"]}}
    rows = [{"problem": text, "tests": tests}, {"problem": "Add.", "tests": tests}, uneven, []]
    (tmp_path / "test_165.json.xz").write_bytes(lzma.compress(json.dumps(rows).encode()))
    read = code_contests.load(tmp_path)
    assert [(problem.wall_seconds, problem.memory_bytes) for problem in read.records] == [
        (2.5, 256_000_000), (None, None),
    ]  # fmt: skip
    assert reasons(read) == [
        ("test_165.json.xz[2]", "inputs and outputs differ in number"),
        ("test_165.json.xz[3]", "not the expected fields"),
    ]


STDIN = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
CALLED = [{"input": '[1, 2]\n"a"', "output": "[true]", "testtype": "functional"}]


def lcb(name: str, public: Any, private: str, **fields: str) -> dict[str, str]:
    """A row of LiveCodeBench."""
    return {
        "question_title": "T", "question_content": "Twice.", "platform": "atcoder",
        "question_id": name, "contest_id": "c", "contest_date": "2024-01-01T00:00:00",
        "starter_code": "", "difficulty": "easy", "public_test_cases": json.dumps(public),
        "private_test_cases": private, "metadata": "{}", **fields,
    }  # fmt: skip


def packed(value: Any) -> str:
    """In the format of the published private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_livecodebench_is_read_with_its_public_and_private_tests(tmp_path: Path) -> None:
    """Problems with programs and with functions; private tests plain or packed."""
    metadata = '{"func_name": "f"}'
    write(
        tmp_path / "test.jsonl",
        lcb("a", STDIN, json.dumps(STDIN * 2)), lcb("b", STDIN, packed(json.dumps(STDIN))),
        lcb("c", CALLED, packed(json.dumps(CALLED)), metadata=metadata),
    )  # fmt: skip
    read = livecodebench.load(tmp_path)
    assert read.skipped == ()
    sizes = [(len(problem.examples), len(problem.tests)) for problem in read.records]
    assert sizes == [(1, 3), (1, 2), (1, 2)]
    assert read.records[0].tests[0] == ProgramTest(stdin="1\n", stdout="2\n")
    assert read.records[2].tests[1] == CallTest(
        function="f", arguments=([1, 2], "a"), expected=[True]
    )


class Malice:
    """A pickle that would run code when loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("owned",)


def test_a_pickle_that_is_more_than_a_string_is_refused_and_not_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = base64.b64encode(zlib.compress(b"\x80\x04X")).decode()
    write(
        tmp_path / "test.jsonl",
        lcb("a", STDIN, packed(Malice())), lcb("b", STDIN, packed([1])), lcb("c", STDIN, "???"),
        lcb("d", STDIN, base64.b64encode(b"no zlib").decode()), lcb("e", STDIN, broken),
        lcb("f", CALLED, "[]"), lcb("g", [], "[]"), lcb("h", STDIN, packed("[")),
        lcb("i", STDIN, "[]", contest_date="soon"), lcb("j", STDIN, "ä"),
    )  # fmt: skip
    assert [reason for _, reason in reasons(livecodebench.load(tmp_path))] == [
        "the private tests are not a string",
        "the private tests are not a string",
        "the private tests cannot be unpacked",
        "the private tests cannot be unpacked",
        "the private tests cannot be unpacked",
        "not the expected fields",
        "no tests",
        "not JSON",
        "not the expected fields",
        "the private tests cannot be unpacked",
    ]
    assert capsys.readouterr().out == ""


def test_missing_data_are_reported_with_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No environment, no file, no folder; unknown names list the known ones."""
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(
        DataError, match=r"HumanEval is not part of this project.*openai/human-eval"
    ):
        humaneval.load()
    with pytest.raises(DataError, match=r"no file mbpp\.jsonl.*google-research"):
        mbpp.load("full", tmp_path)
    with pytest.raises(DataError, match=r"no file train/0000/question\.txt.*hendrycks/apps"):
        apps.load("train", tmp_path)
    with pytest.raises(UsageError, match="no version 'big'; it has full and sanitized"):
        mbpp.load("big", tmp_path)
