"""150 problems of APPS, as selected by MapCoder (both MIT).

JSON lines with a `test_list` of inputs and outputs. If there is starter code, a function is called,
and an input is its arguments as text, one per line. Peculiarities of the data:

* Texts are not quoted, so `12` is a number or a text. An argument that is not a literal in one of a
  problem's tests is a text in all of them.
* A text may have several lines. If there are more lines than parameters, the first parameter gets
  the surplus.
* 22 of the 150 rows repeat another one.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, JsonValue

from loopline.agents.environments.code import CallTest, CodeProblem, ProgramTest
from loopline.agents.environments.code.extraction import parse_program
from loopline.bench.datasets.apps import FOLDERS, PREAMBLE, program_test
from loopline.bench.datasets.code_problems import validate_record
from loopline.bench.datasets.location import data_root, find_first, not_found_error
from loopline.trainers.data.json_files import Reading, Unreadable, fit, read_lines

SOURCE = "https://github.com/Md-Ashraful-Pramanik/MapCoder (data/APPS/selected150.jsonl)"
_SELECTED = "selected150.jsonl"
MAX_TEXT = 500_000

_NUMBERS_AND_TEXTS = frozenset({"3766", "3836"})
"""Problems whose functions take numbers, and also texts to test that they are refused: each
argument is a literal if it can be one."""


class _Test(BaseModel):
    input: str = Field(max_length=MAX_TEXT)
    output: list[JsonValue] = Field(min_length=1, max_length=1)


class _Row(BaseModel):
    name: str = Field(min_length=1, max_length=100)
    description: str = Field(min_length=1, max_length=MAX_TEXT)
    difficulty: str = Field(max_length=100)
    test_list: list[_Test] = Field(min_length=1, max_length=1_000)
    sample_io: list[_Test] = Field(default=[], max_length=1_000)
    starter_code: str = Field(max_length=MAX_TEXT)


def is_available(data: Path | None = None) -> bool:
    """Whether the file exists where `load` looks for it. Raises DataError if there is no folder to
    search."""
    return bool(find_first(data_root("APPS", data, SOURCE), FOLDERS, (_SELECTED,)))


def load(data: Path | None = None) -> Reading[CodeProblem]:
    """Read the selected problems in file order. Raises DataError."""
    root = data_root("APPS", data, SOURCE)
    files = find_first(root, FOLDERS, (_SELECTED,))
    if not files:
        raise not_found_error(root, FOLDERS, (_SELECTED,), SOURCE)
    names: set[str] = set()

    def problem(_: int, value: Any) -> CodeProblem:
        row = fit(_Row, value)
        if row.name in names:
            raise Unreadable("a duplicate problem", row.name)
        names.add(row.name)
        tests, examples = _tests(row)
        return validate_record(
            CodeProblem,
            id=f"apps/{row.name}",
            statement=row.description,
            starter_code=row.starter_code,
            preamble=PREAMBLE if row.starter_code else "",
            examples=examples,
            tests=tests,
            difficulty=row.difficulty,
        )

    read = read_lines(files[0], problem)
    return Reading(read.records, read.skipped, (files[0].name,))


Tests = tuple[ProgramTest, ...] | tuple[CallTest, ...]


def _tests(row: _Row) -> tuple[Tests, Tests]:
    """Return the tests and the examples of a row."""
    if not row.starter_code:
        return _programs(row.test_list), _programs(row.sample_io)
    function, most = _signature(row.starter_code)
    splits = [_arguments(test.input, most) for test in (*row.test_list, *row.sample_io)]
    texts = set[int]()
    if row.name not in _NUMBERS_AND_TEXTS:
        texts = {at for split in splits for at, text in enumerate(split) if not _is_literal(text)}
    calls = tuple(
        validate_record(
            CallTest,
            function=function,
            arguments=tuple(
                text if at in texts or not _is_literal(text) else _literal(text)
                for at, text in enumerate(split)
            ),
            expected=test.output[0],
        )
        for test, split in zip((*row.test_list, *row.sample_io), splits, strict=True)
    )
    return calls[: len(row.test_list)], calls[len(row.test_list) :]


def _programs(tests: list[_Test]) -> tuple[ProgramTest, ...]:
    return tuple(program_test(test.input, test.output[0]) for test in tests)


def _signature(starter: str) -> tuple[str, int]:
    """Return the function's name and its maximum number of arguments."""
    match = re.search(r"^def\s", starter, re.MULTILINE)
    try:
        tree = parse_program(f"{starter.rstrip()} pass") if match else None
    except ValueError as error:
        raise Unreadable("the starter code is not Python", str(error)) from error
    head = tree.body[-1] if tree else None
    if not isinstance(head, ast.FunctionDef):
        raise Unreadable("the starter code is not a function", starter.strip()[:60])
    return head.name, len(head.args.args)


def _arguments(text: str, most: int) -> list[str]:
    """Return the arguments as written."""
    lines = text.split("\n")
    surplus = len(lines) - most
    if surplus <= 0:
        return lines
    return ["\n".join(lines[: surplus + 1]), *lines[surplus + 1 :]]


def _is_literal(text: str) -> bool:
    try:
        _literal(text)
    except Unreadable:
        return False
    return True


def _literal(text: str) -> Any:
    """Return the value of a Python literal. Raises Unreadable."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise Unreadable("not a literal", text) from error
    return value
