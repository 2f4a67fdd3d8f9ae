"""APPS (hendrycks/apps, MIT): problems of programming sites, in its two shapes.

*Selected problems*, JSON lines: a `test_list` of inputs and outputs. Where there is starter code a
function is called, and an input is its arguments as text, one a line. What is really in them:

* Texts stand without quotes, so `12` is a number or a text. An argument that is no literal in one
  of a problem's tests is a text in all of them.
* A text may have several lines. There are then more lines than parameters, and the first parameter
  has the surplus.
* 22 of the 150 rows repeat another one.

*Training folders* (as CodeRL reads them): a folder a problem, with `question.txt`,
`input_output.json` (with `fn_name` where a function is called), and solutions. APPS' judge puts a
program into a function, so a few solutions `return` at their top level; such a one is no program.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, JsonValue

from agents.environments.code import CallTest, CodeProblem, ProgramTest
from agents.environments.code.parsing import parsed
from bench.datasets.code_problems import made
from bench.datasets.location import data_root, find
from bench.errors import DataError
from trainers.data.json_files import Reading, Skipped, Unreadable, document, fit, read_lines

SOURCE = "https://github.com/hendrycks/apps"
_FOLDERS = ("code/apps", "apps", "")
_SELECTED = "selected150.jsonl"
_TRAINING = ("code/apps/coderl_train", "apps/coderl_train", "coderl_train", "train")
MAX_TEXT = 500_000

PREAMBLE = (
    "from typing import *\nfrom collections import *\nfrom functools import *\n"
    "from itertools import *\nfrom heapq import *\nfrom bisect import *\nimport collections\n"
    "import functools\nimport heapq\nimport itertools\nimport math\nimport re\nimport string\n"
    "import sys"
)
"""What APPS' judge puts before a program that is called."""

_NUMBERS_AND_TEXTS = frozenset({"3766", "3836"})
"""Their functions are asked of numbers and, to see that they refuse, of texts: there each argument
is a literal if it can be one."""


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


class _InputOutput(BaseModel):
    fn_name: str | None = Field(default=None, min_length=1, max_length=200)
    inputs: list[JsonValue] = Field(min_length=1, max_length=10_000)
    outputs: list[JsonValue] = Field(min_length=1, max_length=10_000)


def load_selected(data: Path | None = None) -> Reading[CodeProblem]:
    """The selected problems in the order of the file. Raises DataError."""
    path = find(data_root("APPS", data, SOURCE), _FOLDERS, _SELECTED, SOURCE)
    seen: set[str] = set()

    def problem(_: int, value: Any) -> CodeProblem:
        row = fit(_Row, value)
        if row.name in seen:
            raise Unreadable("a problem that stands there already", row.name)
        seen.add(row.name)
        tests, examples = _tests(row)
        return made(
            CodeProblem,
            id=f"apps/{row.name}",
            statement=row.description,
            starter_code=row.starter_code,
            preamble=PREAMBLE if row.starter_code else "",
            examples=examples,
            tests=tests,
            difficulty=row.difficulty,
        )

    return read_lines(path, problem)


def load_training(data: Path | None = None) -> Reading[CodeProblem]:
    """The training folders in the order of their names. Raises DataError."""
    root = data_root("APPS", data, SOURCE)
    folder = next((root / each for each in _TRAINING if (root / each).is_dir()), None)
    if folder is None:
        raise DataError(
            f"{root}: no folder of APPS' training problems was found in it ({', '.join(_TRAINING)}"
            f"); get it from {SOURCE}"
        )
    records: list[CodeProblem] = []
    skipped: list[Skipped] = []
    for each in sorted(path for path in folder.iterdir() if path.is_dir()):
        try:
            records.append(_training(each))
        except Unreadable as error:
            skipped.append(error.at(f"{folder.name}/{each.name}"))
    return Reading(tuple(records), tuple(skipped))


def _training(folder: Path) -> CodeProblem:
    asked = fit(_InputOutput, document(folder / "input_output.json"))
    if len(asked.inputs) != len(asked.outputs):
        raise Unreadable("inputs and outputs differ in number")
    solutions = _solutions(folder)
    # Some outputs of calls stand in a list of one; APPS' judge takes the element, too.
    lists = [each for each in asked.outputs if isinstance(each, list) and len(each) == 1]
    wrapped = len(lists) == len(asked.outputs)
    starter = folder / "starter_code.py"
    return made(
        CodeProblem,
        id=f"apps_train/{folder.name}",
        statement=_text(folder / "question.txt"),
        starter_code=_text(starter) if starter.is_file() else "",
        preamble=PREAMBLE if asked.fn_name else "",
        tests=tuple(
            _called(asked.fn_name, given, wanted, wrapped=wrapped)
            if asked.fn_name
            else _run(given, wanted)
            for given, wanted in zip(asked.inputs, asked.outputs, strict=True)
        ),
        solutions=solutions,
        difficulty=_difficulty(folder),
    )


def _called(function: str, given: JsonValue, wanted: JsonValue, *, wrapped: bool) -> CallTest:
    if not isinstance(given, list):
        raise Unreadable("not the expected fields", "the input of a call is a list of arguments")
    other = tuple(wanted) if wrapped and isinstance(wanted, list) else ()
    return made(
        CallTest, function=function, arguments=tuple(given), expected=wanted, also_right=other
    )


def _run(given: JsonValue, wanted: JsonValue) -> ProgramTest:
    # Some programs' inputs are published as lists of lines.
    if isinstance(given, list):
        given = "\n".join(map(str, given))
    if isinstance(wanted, list):
        wanted = "\n".join(map(str, wanted))
    if not isinstance(given, str) or not isinstance(wanted, str):
        raise Unreadable("not the expected fields", "a program reads and writes text")
    return made(ProgramTest, stdin=given, stdout=wanted)


def _solutions(folder: Path) -> tuple[str, ...]:
    path = folder / "solutions.json"
    if not path.is_file():
        return ()
    found = document(path)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise Unreadable("not the expected fields", "solutions.json is not a list of programs")
    return tuple(found)


def _difficulty(folder: Path) -> str:
    path = folder / "metadata.json"
    about = document(path) if path.is_file() else {}
    return str(about.get("difficulty", "")) if isinstance(about, dict) else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable("a file cannot be read", f"{path.name}: {error}") from error


Tests = tuple[ProgramTest, ...] | tuple[CallTest, ...]


def _tests(row: _Row) -> tuple[Tests, Tests]:
    """The tests and the examples of a row."""
    if not row.starter_code:
        return _programs(row.test_list), _programs(row.sample_io)
    function, most = _signature(row.starter_code)
    splits = [_arguments(test.input, most) for test in (*row.test_list, *row.sample_io)]
    texts = set[int]()
    if row.name not in _NUMBERS_AND_TEXTS:
        texts = {at for split in splits for at, each in enumerate(split) if not _is_literal(each)}
    calls = tuple(
        made(
            CallTest,
            function=function,
            arguments=tuple(
                each if at in texts or not _is_literal(each) else _literal(each)
                for at, each in enumerate(split)
            ),
            expected=test.output[0],
        )
        for test, split in zip((*row.test_list, *row.sample_io), splits, strict=True)
    )
    return calls[: len(row.test_list)], calls[len(row.test_list) :]


def _programs(tests: list[_Test]) -> tuple[ProgramTest, ...]:
    return tuple(_run(test.input, test.output[0]) for test in tests)


def _signature(starter: str) -> tuple[str, int]:
    """The function's name and how many arguments it takes at most."""
    found = re.search(r"^def\s", starter, re.MULTILINE)
    try:
        tree = parsed(f"{starter.rstrip()} pass") if found else None
    except ValueError as error:
        raise Unreadable("the starter code is not Python", str(error)) from error
    head = tree.body[-1] if tree else None
    if not isinstance(head, ast.FunctionDef):
        raise Unreadable("the starter code is no function", starter.strip()[:60])
    return head.name, len(head.args.args)


def _arguments(text: str, most: int) -> list[str]:
    """The arguments as they are written."""
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
    """The value of a Python literal. Raises Unreadable."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise Unreadable("no literal", text) from error
    return value
