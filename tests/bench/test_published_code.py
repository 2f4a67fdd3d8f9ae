"""CodeContests, APPS and LiveCodeBench in their authors' published files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loopline.agents.environments.code import CallTest, ProgramTest
from loopline.bench.datasets import Request, apps, code_contests, livecodebench
from loopline.bench.datasets.gsm8k import VARIABLE
from loopline.bench.errors import DataError, UsageError
from loopline.bench.registry import load
from tests.bench.test_code_datasets import lcb, reasons, write

# ---- CodeContests: Parquet files of Hugging Face

TESTS = pa.struct([("input", pa.list_(pa.string())), ("output", pa.list_(pa.string()))])
SOLUTIONS = pa.struct([("language", pa.list_(pa.int64())), ("solution", pa.list_(pa.string()))])
CONTESTS = pa.schema(
    [
        ("name", pa.string()), ("description", pa.string()), ("public_tests", TESTS),
        ("private_tests", TESTS), ("generated_tests", TESTS), ("source", pa.int64()),
        ("difficulty", pa.int64()), ("solutions", SOLUTIONS), ("incorrect_solutions", SOLUTIONS),
        ("cf_contest_id", pa.int64()), ("cf_index", pa.string()), ("cf_points", pa.float32()),
        ("cf_rating", pa.int32()), ("cf_tags", pa.list_(pa.string())),
        ("is_description_translated", pa.bool_()), ("untranslated_description", pa.string()),
        ("time_limit", pa.struct([("seconds", pa.int64()), ("nanos", pa.int64())])),
        ("memory_limit_bytes", pa.int64()), ("input_file", pa.string()),
        ("output_file", pa.string()),
    ]
)  # fmt: skip
"""A row as on the data set's card."""
NONE: dict[str, list[str]] = {"input": [], "output": []}
CONTEST: dict[str, Any] = {
    "name": "1_A. Double", "description": "Double it.\n",
    "public_tests": {"input": ["1\n"], "output": ["2\n"]},
    "private_tests": {"input": ["2\n"], "output": ["4\n"]},
    "generated_tests": {"input": ["3\n", "4\n"], "output": ["6\n", "8\n"]},
    "source": 2, "difficulty": 8,
    "solutions": {"language": [1, 3, 2, 3], "solution": ["print input()*2", "a", "int m", "b"]},
    "incorrect_solutions": {"language": [3], "solution": ["wrong"]},
    "cf_contest_id": 1, "cf_index": "A", "cf_points": 0.0, "cf_rating": 800, "cf_tags": ["math"],
    "is_description_translated": False, "untranslated_description": "",
    "time_limit": {"seconds": 0, "nanos": 500_000_000}, "memory_limit_bytes": 256_000_000,
    "input_file": "", "output_file": "",
}  # fmt: skip
HASH = "e991a271dbfa9925"


def write_contests(path: Path, *rows: dict[str, Any], schema: Any = CONTESTS) -> None:
    """A Parquet file of rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)


def test_a_published_problem_of_code_contests_has_all_its_tests_and_python_3(
    tmp_path: Path,
) -> None:
    write_contests(tmp_path / f"data/test-00000-of-00001-{HASH}.parquet", CONTEST)
    read = code_contests.load(tmp_path)
    assert read.skipped == ()
    (problem,) = read.records
    assert (problem.id, problem.statement) == ("code_contests/test/0/0", "Double it.")
    assert problem.examples == (ProgramTest(stdin="1\n", stdout="2\n"),)
    assert [test.stdin for test in problem.tests if isinstance(test, ProgramTest)] == [
        "1\n", "2\n", "3\n", "4\n",
    ]  # fmt: skip
    assert problem.solutions == ("a", "b")
    assert (problem.difficulty, problem.wall_seconds, problem.memory_bytes) == ("B", 0.5, 2.56e8)


def test_a_problem_of_code_contests_can_lack_limits_and_python(tmp_path: Path) -> None:
    bare = {
        **CONTEST, "time_limit": None, "memory_limit_bytes": 0, "difficulty": 0,
        "solutions": {"language": [2], "solution": ["int m"]}, "public_tests": NONE,
    }  # fmt: skip
    write_contests(tmp_path / "code_contests/data/valid-00000-of-00001.parquet", bare)
    (problem,) = code_contests.load(tmp_path, "valid").records
    assert (problem.wall_seconds, problem.memory_bytes, problem.difficulty) == (None, None, "")
    assert (problem.solutions, problem.examples, len(problem.tests)) == ((), (), 3)


def test_a_split_of_several_files_is_read_in_order_and_a_missing_file_is_reported(
    tmp_path: Path,
) -> None:
    """A partial score must not pass for a complete one."""
    for at in (2, 0):
        write_contests(tmp_path / f"train-0000{at}-of-00003-{HASH}.parquet", CONTEST, CONTEST)
    read = code_contests.load(tmp_path, "train")
    assert [problem.id.removeprefix("code_contests/train/") for problem in read.records] == [
        "0/0", "0/1", "2/0", "2/1",
    ]  # fmt: skip
    assert reasons(read) == [("train-00001-of-00003", "a file of the split is missing")]


def test_unreadable_problems_of_code_contests_are_reported(tmp_path: Path) -> None:
    write_contests(
        tmp_path / "test-00000-of-00001.parquet",
        CONTEST, {**CONTEST, "input_file": "in.txt"}, {**CONTEST, "description": None},
        {**CONTEST, "private_tests": {"input": ["1"], "output": []}},
        {**CONTEST, "public_tests": NONE, "private_tests": NONE, "generated_tests": NONE},
        {**CONTEST, "solutions": {"language": [3], "solution": []}},
        {**CONTEST, "time_limit": {"seconds": -1, "nanos": 0}},
    )  # fmt: skip
    read = code_contests.load(tmp_path)
    assert len(read.records) == 1
    name = "test-00000-of-00001.parquet"
    assert reasons(read) == [
        (f"{name}[1]", "programs must read or write a file"),
        (f"{name}[2]", "not the expected fields"),
        (f"{name}[3]", "inputs and outputs differ in number"),
        (f"{name}[4]", "no tests"),
        (f"{name}[5]", "not the expected fields"),
        (f"{name}[6]", "not the expected fields"),
    ]


def test_an_invalid_or_foreign_parquet_file_is_reported(tmp_path: Path) -> None:
    """The bench then asks no questions."""
    path = tmp_path / "test-00000-of-00001.parquet"
    other_schema = pa.schema([("premise", pa.string())])
    for reason, write_it in (
        ("the file cannot be read", lambda: path.write_text("PAR1 and then nothing")),
        ("the file cannot be read", lambda: path.write_bytes(b"")),
        (
            "not the expected fields",
            lambda: write_contests(path, {"premise": "?"}, schema=other_schema),
        ),
    ):
        write_it()
        assert reasons(code_contests.load(tmp_path)) == [(path.name, reason)]
    with pytest.raises(DataError, match=r"contains no problems \(test-0.*columns premise: no name"):
        load("code", Request(data=tmp_path, choices={"dataset": "codecontests"}))


def test_a_broken_parquet_file_yields_the_rows_before_the_break(tmp_path: Path) -> None:
    """Files are long, and rows before the break are complete."""
    path = tmp_path / "test-00000-of-00001.parquet"
    table = pa.Table.from_pylist([CONTEST, CONTEST], schema=CONTESTS)
    pq.write_table(table, path, row_group_size=1)
    second = pq.ParquetFile(path).metadata.row_group(1).column(0)
    content = bytearray(path.read_bytes())
    at = second.dictionary_page_offset or second.data_page_offset
    content[at : at + 20] = b"\xff" * 20
    path.write_bytes(content)
    read = code_contests.load(tmp_path)
    assert [problem.id for problem in read.records] == ["code_contests/test/0/0"]
    assert reasons(read) == [(f"{path.name}[1]", "the file cannot be read")]


# ---- APPS: folders of the archive, JSON lines of Hugging Face

STDIN = {"inputs": ["1\n", "2\n"], "outputs": ["2\n", "4\n"]}
CALLED = {"fn_name": "f", "inputs": [[1, "a"], [2, "b"]], "outputs": [["x"], ["y"]]}
LINE: dict[str, Any] = {
    "id": 0, "question": "Double it.", "solutions": json.dumps(["print(2 * int(input()))"]),
    "input_output": json.dumps(STDIN), "difficulty": "interview", "url": "https://example.org",
    "starter_code": "",
}  # fmt: skip


def write_folder(folder: Path, **files: str) -> None:
    """A problem: `question_txt` is `question.txt`."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(content, encoding="utf-8")


@pytest.mark.parametrize("split", ["train", "test"])
def test_apps_is_read_from_the_folders_of_its_archive(tmp_path: Path, split: str) -> None:
    """Test problems often have no solutions, and most have no starter code."""
    write_folder(
        tmp_path / f"APPS/{split}/0000",
        question_txt="Double it.", input_output_json=json.dumps(STDIN),
        metadata_json='{"difficulty": "interview", "url": "https://example.org"}',
    )  # fmt: skip
    write_folder(
        tmp_path / f"APPS/{split}/0001",
        question_txt="Name it.", input_output_json=json.dumps(CALLED),
        solutions_json='["def f(n, t): return t"]', starter_code_py="def f(n, t):\n\t",
    )  # fmt: skip
    write_folder(tmp_path / f"APPS/{split}/0002", question_txt="No tests.")
    read = apps.load(split, tmp_path)
    first, second = read.records
    assert (first.id, first.difficulty, first.solutions) == (f"apps_{split}/0000", "interview", ())
    assert first.tests[1] == ProgramTest(stdin="2\n", stdout="4\n")
    assert second.tests[0] == CallTest(
        function="f", arguments=(1, "a"), expected=["x"], also_right=("x",)
    )
    assert (second.starter_code, len(second.solutions)) == ("def f(n, t):\n\t", 1)
    assert reasons(read) == [(f"{split}/0002", "no tests")]


@pytest.mark.parametrize("split", ["train", "test"])
def test_apps_is_read_from_the_lines_of_hugging_face(tmp_path: Path, split: str) -> None:
    """A problem has the same id as in the archive, under either name of its number."""
    called = {key: value for key, value in LINE.items() if key != "id"}
    write(
        tmp_path / f"apps/{split}.jsonl",
        LINE,
        {**called, "problem_id": 17, "input_output": json.dumps(CALLED), "solutions": "",
         "starter_code": "def f(n, t):\n\t"},
    )  # fmt: skip
    read = apps.load(split, tmp_path)
    assert (read.skipped, read.files) == ((), (f"{split}.jsonl",))
    first, second = read.records
    assert (first.id, second.id) == (f"apps_{split}/0000", f"apps_{split}/0017")
    assert (first.solutions, second.solutions) == (("print(2 * int(input()))",), ())
    assert first.tests == (
        ProgramTest(stdin="1\n", stdout="2\n"), ProgramTest(stdin="2\n", stdout="4\n"),
    )  # fmt: skip
    assert second.question.function == "f"


def test_unreadable_lines_of_apps_are_reported(tmp_path: Path) -> None:
    write(
        tmp_path / "train.jsonl",
        "[", {**LINE, "id": None}, {**LINE, "input_output": ""}, {**LINE, "input_output": "{"},
        {**LINE, "input_output": '{"inputs": ["1"], "outputs": []}'},
        {**LINE, "input_output": '{"inputs": [], "outputs": []}'},
        {**LINE, "solutions": '{"a": 1}'},
        {**LINE, "input_output": f'{{"inputs": [{"9" * 5_000}], "outputs": ["1"]}}'}, LINE,
    )  # fmt: skip
    read = apps.load("train", tmp_path)
    assert len(read.records) == 1
    assert reasons(read) == [
        ("train.jsonl:1", "not JSON"),
        ("train.jsonl:2", "not the expected fields"),
        ("train.jsonl:3", "no tests"),
        ("train.jsonl:4", "not JSON"),
        ("train.jsonl:5", "inputs and outputs differ in number"),
        ("train.jsonl:6", "no tests"),
        ("train.jsonl:7", "not the expected fields"),
        ("train.jsonl:8", "not JSON"),
    ]


def test_the_source_states_whether_the_whole_test_split_was_used(tmp_path: Path) -> None:
    """The 150 selected problems replace it only if it is missing."""
    selected = {
        "name": "12", "description": "Twice.", "difficulty": "interview", "starter_code": "",
        "test_list": [{"input": "1\n", "output": ["2\n"]}],
    }  # fmt: skip
    write(tmp_path / "selected150.jsonl", selected)
    request = Request(data=tmp_path, choices={"dataset": "apps"})
    assert load("code", request).source == "apps, test, from selected150.jsonl"
    write(tmp_path / "test.jsonl", LINE, LINE)
    assert load("code", request).source == (
        "apps, test, from test.jsonl (1 record left out: a duplicate problem: 1 (apps_test/0000))"
    )
    apps_request = Request("selected", data=tmp_path, choices={"dataset": "apps"})
    assert [item.id for item in load("code", apps_request).items] == ["code/apps/12"]


def names_behind(preamble: str) -> set[str]:
    """The names that a program may use; in a separate process, since a preamble may set limits."""
    process = subprocess.run(
        [sys.executable, "-c", f"{preamble}\nprint(*globals())"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(process.stdout.split())


def test_a_program_of_apps_can_use_its_judge_s_imports(tmp_path: Path) -> None:
    """For called functions and for whole programs; the streams only for the latter."""
    write(
        tmp_path / "train.jsonl",
        LINE, {**LINE, "id": 1, "input_output": json.dumps(CALLED)},
    )  # fmt: skip
    whole, called = (
        names_behind(record.preamble) for record in apps.load("train", tmp_path).records
    )
    assert whole - called == {"stdin", "stdout"}
    assert called >= {"deque", "heappush", "lru_cache", "gcd", "List", "permutations", "fractions"}
    # Its judge does not import these: they may be a program's own mistake.
    assert not called & {"bisect", "reduce", "Optional", "np"}


# ---- LiveCodeBench: files of gigabytes, lines of megabytes


def test_a_problem_of_livecodebench_can_have_megabytes_of_tests(tmp_path: Path) -> None:
    large = [{"input": "1" * 1_500_000, "output": "2", "testtype": "stdin"}] * 2
    write(tmp_path / "test.jsonl", lcb("a", [], json.dumps(large)), lcb("b", large, "[]"))
    read = livecodebench.load(tmp_path)
    assert (len(read.records), read.skipped) == (2, ())


def test_a_program_of_livecodebench_can_use_its_judge_s_imports(tmp_path: Path) -> None:
    """Even in whole programs; and Python's own names keep their meaning."""
    plain = [{"input": "1", "output": "2", "testtype": "stdin"}]
    write(tmp_path / "test.jsonl", lcb("a", plain, "[]"))
    (problem,) = livecodebench.load(tmp_path).records
    checks = "import builtins\nassert pow is builtins.pow and open is builtins.open\n"
    assert names_behind(f"{problem.preamble}\n{checks}assert sys.getrecursionlimit() == 50000") >= {
        "inf", "comb", "Counter", "bisect_left", "accumulate", "cache", "deepcopy", "Optional",
        "mean", "ascii_lowercase", "stdin", "heapq", "itertools", "reduce", "sub", "randint",
    }  # fmt: skip


# ---- what is not there


def test_missing_published_sets_are_reported_with_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    contests = r"https://huggingface\.co/datasets/deepmind/code_contests"
    with pytest.raises(DataError, match=rf"CodeContests is not part of .*{contests}.*--data"):
        code_contests.load()
    with pytest.raises(DataError, match=rf"no file train-\*-of-\*\.parquet \(or .*{contests}"):
        code_contests.load(tmp_path, "train")
    with pytest.raises(DataError, match=rf"test-\*-of-\*\.parquet or test_165\.json .*{contests}"):
        code_contests.load(tmp_path)
    release = r"github\.com/hendrycks/apps .*huggingface\.co/datasets/codeparrot/apps"
    with pytest.raises(DataError, match=rf"test/0000/question\.txt or test\.jsonl .*{release}"):
        load("code", Request(data=tmp_path, choices={"dataset": "apps"}))
    with pytest.raises(DataError, match=r"no file selected150\.jsonl.*MapCoder"):
        load("code", Request("selected", data=tmp_path, choices={"dataset": "apps"}))
    with pytest.raises(UsageError, match="no split 'dev'; it has train, valid, test"):
        code_contests.load(tmp_path, "dev")
    with pytest.raises(UsageError, match="apps has no 'valid'; it has: train, test, selected"):
        load("code", Request("valid", data=tmp_path, choices={"dataset": "apps"}))
