"""CodeContests' test problems (google-deepmind/code_contests, CC-BY-4.0), as one JSON list.

A problem's text ends with its limits, in the manner of `Time Limit: {'seconds': 2, 'nanos': 0}`;
they become the problem's own. It has no solutions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from agents.environments.code import CodeProblem, ProgramTest
from bench.datasets.code_problems import made
from bench.datasets.location import data_root, find
from trainers.data.json_files import Reading, Skipped, Unreadable, document, fit

SOURCE = "https://github.com/google-deepmind/code_contests"
_FOLDERS = ("code/code_contests", "code_contests", "")
_FILE = "test_165.json"
MAX_TEXT = 1_000_000

_TIME = re.compile(r"^Time Limit: \{'seconds': (\d{1,4}), 'nanos': (\d{1,9})\}\s*$", re.MULTILINE)
_MEMORY = re.compile(r"^Memory Limit: (\d{1,12}) Bytes\s*$", re.MULTILINE)


class _Tests(BaseModel):
    inputs: list[str] = Field(min_length=1, max_length=10_000)
    outputs: list[str] = Field(min_length=1, max_length=10_000)


class _Row(BaseModel):
    problem: str = Field(min_length=1, max_length=MAX_TEXT)
    tests: _Tests


def load(data: Path | None = None) -> Reading[CodeProblem]:
    """Every problem in the order of the file. Raises DataError."""
    path = find(data_root("CodeContests", data, SOURCE), _FOLDERS, _FILE, SOURCE)
    records: list[CodeProblem] = []
    skipped: list[Skipped] = []
    try:
        rows = document(path)
        if not isinstance(rows, list):
            raise Unreadable("not the expected fields", "the file is not a list of problems")
    except Unreadable as error:
        return Reading((), (error.at(path.name),))
    for number, value in enumerate(rows):
        try:
            records.append(_problem(number, value))
        except Unreadable as error:
            skipped.append(error.at(f"{path.name}[{number}]"))
    return Reading(tuple(records), tuple(skipped))


def _problem(number: int, value: Any) -> CodeProblem:
    row = fit(_Row, value)
    if len(row.tests.inputs) != len(row.tests.outputs):
        raise Unreadable("inputs and outputs differ in number")
    time, memory = _TIME.search(row.problem), _MEMORY.search(row.problem)
    seconds = int(time[1]) + int(time[2]) / 1e9 if time else 0.0
    return made(
        CodeProblem,
        id=f"code_contests/{number}",
        statement=row.problem.strip(),
        tests=tuple(
            made(ProgramTest, stdin=given, stdout=wanted)
            for given, wanted in zip(row.tests.inputs, row.tests.outputs, strict=True)
        ),
        wall_seconds=seconds or None,
        memory_bytes=int(memory[1]) or None if memory else None,
    )
