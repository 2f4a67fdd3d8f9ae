"""MBPP (google-research, CC-BY-4.0): short functions, each with a few assertions.

Published twice: the full set as JSON lines with `text`, and a list of 427 that were looked through
by hand (sanitized) with `prompt`. Each assertion is a test. The full set's further, harder
assertions (`challenge_test_list`) are no part of the published measure and are left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from agents.environments.code import AssertionTest, CodeProblem
from bench.datasets.code_problems import imports_for, made, names_under_test
from bench.datasets.location import data_root, find
from bench.errors import UsageError
from trainers.data.json_files import Reading, fit, read_lines, read_list

VERSIONS = {"full": "mbpp.jsonl", "sanitized": "sanitized-mbpp.json"}
SOURCE = "https://github.com/google-research/google-research (folder mbpp)"
_FOLDERS = ("code/mbpp", "mbpp", "data", "")
MAX_TEXT = 100_000


class _FullRow(BaseModel):
    task_id: int = Field(ge=0)
    text: str = Field(min_length=1, max_length=MAX_TEXT)
    code: str = Field(min_length=1, max_length=MAX_TEXT)
    test_list: list[str] = Field(min_length=1, max_length=1_000)
    test_setup_code: str = Field(max_length=MAX_TEXT)


class _SanitizedRow(BaseModel):
    task_id: int = Field(ge=0)
    prompt: str = Field(min_length=1, max_length=MAX_TEXT)
    code: str = Field(min_length=1, max_length=MAX_TEXT)
    test_list: list[str] = Field(min_length=1, max_length=1_000)
    test_imports: list[str] = Field(max_length=100)


def load(version: str = "sanitized", data: Path | None = None) -> Reading[CodeProblem]:
    """Every problem in the order of the file. Raises DataError, UsageError for another version."""
    if version not in VERSIONS:
        raise UsageError(f"MBPP has no version {version!r}; it has {' and '.join(VERSIONS)}")
    path = find(data_root("MBPP", data, SOURCE), _FOLDERS, VERSIONS[version], SOURCE)
    if version == "full":
        return read_lines(path, lambda _, value: _full(value))
    return read_list(path, lambda _, value: _sanitized(value))


def _full(value: Any) -> CodeProblem:
    row = fit(_FullRow, value)
    return _problem(f"mbpp/{row.task_id}", row.text, row.code, row.test_list, row.test_setup_code)


def _sanitized(value: Any) -> CodeProblem:
    row = fit(_SanitizedRow, value)
    setup = "\n".join(row.test_imports)
    return _problem(f"mbpp_sanitized/{row.task_id}", row.prompt, row.code, row.test_list, setup)


def _problem(name: str, text: str, code: str, tests: list[str], setup: str) -> CodeProblem:
    names = names_under_test([*tests, setup], code)
    assertions = tuple(made(AssertionTest, source=test) for test in tests)
    return made(
        CodeProblem,
        id=name,
        statement=text,
        # The model is shown the assertions: they tell the function's name and its arguments.
        examples=assertions,
        tests=assertions,
        setup="\n".join(filter(None, (imports_for(tests, code), setup))),
        names=names,
        solutions=(code,),
    )
