"""CodeContests (google-deepmind/code_contests, CC-BY-4.0), as published and as a reduced list.

*Published*, on Hugging Face: Parquet files of three splits, `data/train-00000-of-00039-….parquet`
and so on. Fields are those of its data set card. Only Python 3 solutions are read, but all tests:
public (also shown in the statement), private, and generated. A problem that reads or writes files
is left out: programs run with standard input and output.

*List*: one JSON file with the 165 problems of the test split, reduced by agentica-project/rllm. A
problem's text ends with its limits, such as `Time Limit: {'seconds': 2, 'nanos': 0}`; they become
the problem's limits. The list has no solutions and only some of the tests.
"""

from __future__ import annotations

import re
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from loopline.agents.environments.code import CodeProblem, ProgramTest
from loopline.bench.datasets.code_problems import validate_record
from loopline.bench.datasets.location import data_root, find_first, not_found_error
from loopline.bench.errors import UsageError
from loopline.trainers.data.json_files import Reading, Unreadable, fit, read_list
from loopline.trainers.data.parquet_rows import read_shards

SOURCE = "https://huggingface.co/datasets/deepmind/code_contests (folder data)"
SPLITS = ("train", "valid", "test")
_FOLDERS = tuple(
    folder + sub
    for folder in ("code/code_contests", "code_contests", "")
    for sub in (("/data", "") if folder else ("data", ""))
)
_LIST = "test_165.json"
MAX_TEXT = 1_000_000
MAX_SOLUTIONS = 10
"""Maximum solutions per problem: some have hundreds, and a judge needs only one that passes."""

_PYTHON_3 = 3
"""Python 3's number among the data set's languages: 1 is Python 2, 2 is C++, 4 is Java."""
_DIFFICULTIES = (
    "", "easy", "medium", "hard", "harder", "hardest", "external", *string.ascii_uppercase[:22]
)  # fmt: skip
"""Names of the difficulties by number; the letters are a contest's problem letters."""

_TIME = re.compile(r"^Time Limit: \{'seconds': (\d{1,4}), 'nanos': (\d{1,9})\}\s*$", re.MULTILINE)
_MEMORY = re.compile(r"^Memory Limit: (\d{1,12}) Bytes\s*$", re.MULTILINE)


class _Tests(BaseModel):
    input: list[str] = Field(max_length=10_000)
    output: list[str] = Field(max_length=10_000)


class _Solutions(BaseModel):
    language: list[int]
    solution: list[str]


class _Duration(BaseModel):
    seconds: int = Field(ge=0, le=86_400)
    nanos: int = Field(ge=0, lt=1_000_000_000)


class _Row(BaseModel):
    name: str = Field(max_length=1_000)
    description: str = Field(min_length=1, max_length=MAX_TEXT)
    public_tests: _Tests
    private_tests: _Tests
    generated_tests: _Tests
    solutions: _Solutions
    difficulty: int = Field(ge=0)
    time_limit: _Duration | None
    memory_limit_bytes: int = Field(ge=0)
    input_file: str
    output_file: str


class _ListedTests(BaseModel):
    inputs: list[str] = Field(min_length=1, max_length=10_000)
    outputs: list[str] = Field(min_length=1, max_length=10_000)


class _ListedRow(BaseModel):
    problem: str = Field(min_length=1, max_length=MAX_TEXT)
    tests: _ListedTests


def load(data: Path | None = None, split: str = "test") -> Reading[CodeProblem]:
    """Read every problem of a split in file order; the test split comes from the list if its
    published files are missing. Raises DataError, and UsageError for another split."""
    if split not in SPLITS:
        raise UsageError(f"CodeContests has no split {split!r}; it has {', '.join(SPLITS)}")
    root = data_root("CodeContests", data, SOURCE)
    published = f"{split}-*-of-*.parquet"
    if files := find_first(root, _FOLDERS, (published,)):
        columns = tuple(_Row.model_fields)
        return read_shards(files, columns, lambda place, row: _problem(split, place, row))
    file_names = (published, _LIST) if split == "test" else (published,)
    if files := find_first(root, _FOLDERS, file_names[1:]):
        return _read_listed(files[0])
    raise not_found_error(root, _FOLDERS, file_names, SOURCE)


def _problem(split: str, place: str, value: Any) -> CodeProblem:
    row = fit(_Row, value)
    if row.input_file or row.output_file:
        raise Unreadable(
            "programs must read or write a file",
            f"{row.name}: {row.input_file or 'stdin'} to {row.output_file or 'stdout'}",
        )
    public = _programs(row.public_tests)
    tests = (*public, *_programs(row.private_tests), *_programs(row.generated_tests))
    if not tests:
        raise Unreadable("no tests", row.name)
    limit = row.time_limit
    return validate_record(
        CodeProblem,
        id=f"code_contests/{split}/{place}",
        statement=row.description.strip(),
        examples=public,
        tests=tests,
        solutions=_python_solutions(row.solutions),
        difficulty=_DIFFICULTIES[row.difficulty] if row.difficulty < len(_DIFFICULTIES) else "",
        wall_seconds=(limit.seconds + limit.nanos / 1e9 or None) if limit else None,
        memory_bytes=row.memory_limit_bytes or None,
    )


def _programs(tests: _Tests) -> tuple[ProgramTest, ...]:
    if len(tests.input) != len(tests.output):
        raise Unreadable("inputs and outputs differ in number")
    return tuple(
        validate_record(ProgramTest, stdin=test_input, stdout=wanted)
        for test_input, wanted in zip(tests.input, tests.output, strict=True)
    )


def _python_solutions(solutions: _Solutions) -> tuple[str, ...]:
    if len(solutions.language) != len(solutions.solution):
        raise Unreadable("not the expected fields", "solutions: languages and programs differ")
    both = zip(solutions.language, solutions.solution, strict=True)
    return tuple(program for language, program in both if language == _PYTHON_3)[:MAX_SOLUTIONS]


def _read_listed(path: Path) -> Reading[CodeProblem]:
    return replace(read_list(path, _listed_problem), files=(path.name,))


def _listed_problem(number: int, value: Any) -> CodeProblem:
    row = fit(_ListedRow, value)
    time, memory = _TIME.search(row.problem), _MEMORY.search(row.problem)
    seconds = int(time[1]) + int(time[2]) / 1e9 if time else 0.0
    return validate_record(
        CodeProblem,
        id=f"code_contests/{number}",
        statement=row.problem.strip(),
        tests=_programs(_Tests(input=row.tests.inputs, output=row.tests.outputs)),
        wall_seconds=seconds or None,
        memory_bytes=int(memory[1]) or None if memory else None,
    )
