"""APPS (hendrycks/apps, MIT): 10,000 problems from programming sites, in both published forms.

*Folders*, as in its archive (and as CodeRL reads them): `train/0000`, `test/0000` and so on, each
with `question.txt`, `input_output.json` (with `fn_name` if a function is called), and often
`solutions.json`, `metadata.json` and `starter_code.py`.

*JSON lines*, as in codeparrot/apps on Hugging Face: `train.jsonl` and `test.jsonl` with the same
content; `input_output` and `solutions` are JSON inside JSON, or empty if there are none.

A problem without tests is left out. APPS' judge puts a program into a function, so a few solutions
`return` at the top level; such a solution is not a valid program. If a function's only argument is
an object whose keys are all whole numbers, JSON writes them as text; APPS' judge converts them to
numbers. Here they stay text, and a program that expects numbers fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, Field, JsonValue

from loopline.agents.environments.code import CallTest, CodeProblem, ProgramTest
from loopline.bench.datasets.code_problems import validate_record
from loopline.bench.datasets.location import data_root, find_first, not_found_error
from loopline.bench.errors import UsageError
from loopline.trainers.data.json_files import (
    Limits,
    Reading,
    Skipped,
    Unreadable,
    fit,
    parse,
    read_document,
    read_lines,
)

SOURCE = (
    "https://github.com/hendrycks/apps (folders train and test of its archive) or "
    "https://huggingface.co/datasets/codeparrot/apps (train.jsonl and test.jsonl)"
)
SPLITS = ("train", "test")
FOLDERS = ("code/apps", "apps", "APPS", "")
_PARTS: dict[str, tuple[str, ...]] = {"train": ("train", "coderl_train"), "test": ("test",)}
"""Folders by split, the complete one first; CodeRL's repository has a few training problems."""
_QUESTION = "question.txt"
MAX_TEXT = 500_000
_LIMITS = Limits(file_bytes=4 * 2**30, line_bytes=256 * 2**20)
"""Size limits of a file and a line: the published test.jsonl has 1.3 gigabytes, and some problems
have megabytes of tests."""

PREAMBLE = (
    "import sys\nimport time\nimport itertools\n"
    "from itertools import accumulate, product, permutations, combinations\nimport collections\n"
    "from collections import Counter, OrderedDict, deque, defaultdict, ChainMap\n"
    "from functools import lru_cache\nimport math\n"
    "from math import sqrt, sin, cos, tan, ceil, fabs, floor, gcd, exp, log, log2\n"
    "import fractions\nfrom typing import List, Tuple\nimport random\nimport heapq\n"
    "from heapq import *"
)
"""Code that APPS' judge puts before every program (eval/testing_util.py), without NumPy, which a
sandbox does not have."""
_STREAMS = "\nstdin = sys.stdin\nstdout = sys.stdout"
"""Code that the judge adds to a program that is run as a whole."""


class _InputOutput(BaseModel):
    fn_name: str | None = Field(default=None, min_length=1, max_length=200)
    inputs: list[JsonValue] = Field(max_length=10_000)
    outputs: list[JsonValue] = Field(max_length=10_000)


class _Row(BaseModel):
    problem_id: int = Field(ge=0, validation_alias=AliasChoices("id", "problem_id"))
    """Id of the problem: `id` in the files, `problem_id` when exported by the `datasets`
    library."""
    question: str = Field(min_length=1, max_length=MAX_TEXT)
    input_output: str
    solutions: str
    difficulty: str = Field(max_length=100)
    starter_code: str = Field(max_length=MAX_TEXT)


def is_available(split: str, data: Path | None = None) -> bool:
    """Whether the split exists where `load` looks for it. Raises DataError if there is no folder to
    search."""
    root = data_root("APPS", data, SOURCE)
    return _folder(root, split) is not None or bool(find_first(root, FOLDERS, (f"{split}.jsonl",)))


def load(split: str, data: Path | None = None) -> Reading[CodeProblem]:
    """Read the problems of a split in the order of their numbers. Raises DataError, and UsageError
    for another split."""
    if split not in SPLITS:
        raise UsageError(f"APPS has no split {split!r}; it has {' and '.join(SPLITS)}")
    root = data_root("APPS", data, SOURCE)
    if (folder := _folder(root, split)) is not None:
        return _folders(folder, split)
    if files := find_first(root, FOLDERS, (f"{split}.jsonl",)):
        read = read_lines(files[0], lambda _, value: _line(split, value), _LIMITS)
        return Reading(read.records, read.skipped, (files[0].name,))
    raise not_found_error(root, FOLDERS, (f"{split}/0000/{_QUESTION}", f"{split}.jsonl"), SOURCE)


def _folder(root: Path, split: str) -> Path | None:
    """Return the folder that contains a folder for each problem of a split."""
    questions = tuple(f"{part}/*/{_QUESTION}" for part in _PARTS[split])
    paths = find_first(root, FOLDERS, questions)
    return paths[0].parent.parent if paths else None


def _folders(folder: Path, split: str) -> Reading[CodeProblem]:
    records: list[CodeProblem] = []
    skipped: list[Skipped] = []
    for subfolder in sorted(path for path in folder.iterdir() if path.is_dir()):
        try:
            records.append(_problem_in_folder(subfolder, split))
        except Unreadable as error:
            skipped.append(error.at(f"{folder.name}/{subfolder.name}"))
    return Reading(tuple(records), tuple(skipped), (f"{folder.name}/",))


def _problem_in_folder(folder: Path, split: str) -> CodeProblem:
    tests_file, solutions = folder / "input_output.json", folder / "solutions.json"
    about, starter = folder / "metadata.json", folder / "starter_code.py"
    metadata = _document(about) if about.is_file() else {}
    return _problem(
        f"apps_{split}/{folder.name}",
        _text(folder / _QUESTION),
        _document(tests_file) if tests_file.is_file() else None,
        _document(solutions) if solutions.is_file() else [],
        difficulty=str(metadata.get("difficulty", "")) if isinstance(metadata, dict) else "",
        starter=_text(starter) if starter.is_file() else "",
    )


def _line(split: str, value: Any) -> CodeProblem:
    row = fit(_Row, value)
    return _problem(
        f"apps_{split}/{row.problem_id:04d}",
        row.question,
        parse(row.input_output) if row.input_output.strip() else None,
        parse(row.solutions) if row.solutions.strip() else [],
        difficulty=row.difficulty,
        starter=row.starter_code,
    )


def _problem(
    name: str, question: str, tests: Any, solutions: Any, *, difficulty: str, starter: str
) -> CodeProblem:
    test_data = (
        fit(_InputOutput, tests) if tests is not None else _InputOutput(inputs=[], outputs=[])
    )
    if len(test_data.inputs) != len(test_data.outputs):
        raise Unreadable("inputs and outputs differ in number")
    if not test_data.inputs:
        raise Unreadable("no tests", name)
    if not isinstance(solutions, list) or not all(isinstance(item, str) for item in solutions):
        raise Unreadable("not the expected fields", "the solutions are not a list of programs")
    # Some outputs of calls are wrapped in a list of one; APPS' judge accepts the bare element, too.
    lists = [item for item in test_data.outputs if isinstance(item, list) and len(item) == 1]
    wrapped = len(lists) == len(test_data.outputs)
    return validate_record(
        CodeProblem,
        id=name,
        statement=question,
        starter_code=starter,
        preamble=PREAMBLE if test_data.fn_name else PREAMBLE + _STREAMS,
        tests=tuple(
            _call_test(test_data.fn_name, test_input, wanted, wrapped=wrapped)
            if test_data.fn_name
            else program_test(test_input, wanted)
            for test_input, wanted in zip(test_data.inputs, test_data.outputs, strict=True)
        ),
        solutions=tuple(solutions),
        difficulty=difficulty,
    )


def _call_test(
    function: str, arguments: JsonValue, wanted: JsonValue, *, wrapped: bool
) -> CallTest:
    if not isinstance(arguments, list):
        raise Unreadable("not the expected fields", "the input of a call is a list of arguments")
    alternatives = tuple(wanted) if wrapped and isinstance(wanted, list) else ()
    return validate_record(
        CallTest,
        function=function,
        arguments=tuple(arguments),
        expected=wanted,
        also_right=alternatives,
    )


def program_test(stdin: JsonValue, wanted: JsonValue) -> ProgramTest:
    """Return the test of a whole program. Raises Unreadable."""
    # Some inputs of programs are published as lists of lines.
    if isinstance(stdin, list):
        stdin = "\n".join(map(str, stdin))
    if isinstance(wanted, list):
        wanted = "\n".join(map(str, wanted))
    if not isinstance(stdin, str) or not isinstance(wanted, str):
        raise Unreadable("not the expected fields", "a program reads and writes text")
    return validate_record(ProgramTest, stdin=stdin, stdout=wanted)


def _document(path: Path) -> Any:
    return read_document(path, _LIMITS.line_bytes)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable("a file cannot be read", f"{path.name}: {error}") from error
