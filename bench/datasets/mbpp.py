"""MBPP (google-research, CC-BY-4.0): short functions, each with a few assertions.

Published twice: the full set as JSON lines with `text`, and a hand-checked list of 427 (sanitized)
with `prompt`. Each assertion is a test.

*For measuring*, all assertions are shown, as the authors did: nothing is hidden. The harder
assertions of a few problems in the full set (`challenge_test_list`) are left out.

*For training*, that would reward a lookup table of the assertions' values. So only the first
assertion is shown, for the function's name and its arguments, and the harder ones are tests, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from loopline.agents.environments.code import AssertionTest, CodeProblem
from loopline.bench.datasets.code_problems import imports_for, names_under_test, validate_record
from loopline.bench.datasets.location import data_root, find
from loopline.bench.errors import UsageError
from loopline.trainers.data.json_files import Reading, fit, read_lines, read_list

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
    challenge_test_list: list[str] = Field(default_factory=list, max_length=1_000)


class _SanitizedRow(BaseModel):
    task_id: int = Field(ge=0)
    prompt: str = Field(min_length=1, max_length=MAX_TEXT)
    code: str = Field(min_length=1, max_length=MAX_TEXT)
    test_list: list[str] = Field(min_length=1, max_length=1_000)
    test_imports: list[str] = Field(max_length=100)


def load(
    version: str = "sanitized", data: Path | None = None, *, training: bool = False
) -> Reading[CodeProblem]:
    """Read every problem in file order, for measuring or for training. Raises DataError, and
    UsageError for another version."""
    if version not in VERSIONS:
        raise UsageError(f"MBPP has no version {version!r}; it has {' and '.join(VERSIONS)}")
    path = find(data_root("MBPP", data, SOURCE), _FOLDERS, VERSIONS[version], SOURCE)
    if version == "full":
        return read_lines(path, lambda _, value: _full(value, training))
    return read_list(path, lambda _, value: _sanitized(value, training))


def _full(value: Any, training: bool) -> CodeProblem:
    row = fit(_FullRow, value)
    tests, example_count = row.test_list, len(row.test_list)
    if training:
        tests, example_count = [*tests, *row.challenge_test_list], 1
    name = f"mbpp/{row.task_id}"
    return _problem(name, row.text, row.code, tests, row.test_setup_code, example_count)


def _sanitized(value: Any, training: bool) -> CodeProblem:
    row = fit(_SanitizedRow, value)
    example_count = 1 if training else len(row.test_list)
    name, setup = f"mbpp_sanitized/{row.task_id}", "\n".join(row.test_imports)
    return _problem(name, row.prompt, row.code, row.test_list, setup, example_count)


def _problem(
    name: str, text: str, code: str, tests: list[str], setup: str, example_count: int
) -> CodeProblem:
    names = names_under_test([*tests, setup], code)
    assertions = tuple(validate_record(AssertionTest, source=test) for test in tests)
    return validate_record(
        CodeProblem,
        id=name,
        statement=text,
        # Examples show the function's name and its arguments.
        examples=assertions[:example_count],
        tests=assertions,
        setup="\n".join(filter(None, (imports_for(tests, code), setup))),
        names=names,
        solutions=(code,),
    )
