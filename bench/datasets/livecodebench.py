"""LiveCodeBench's code generation problems, in `code_generation_lite` format (JSON lines).

Fields are read as its own loader does (LiveCodeBench/LiveCodeBench, lcb_runner/benchmarks): tests
are JSON inside JSON. The private ones are plain JSON, or base64 of zlib of a *pickle* of JSON.
Loading a pickle can run arbitrary code, so it is never loaded: an opcode parser extracts the single
string in it, and a pickle of anything else is refused.
"""

from __future__ import annotations

import base64
import pickletools
import zlib
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from loopline.agents.environments.code import CallTest, CodeProblem, CodeTest, ProgramTest
from loopline.bench.datasets.code_problems import validate_record
from loopline.bench.datasets.location import data_root, find
from loopline.trainers.data.json_files import Limits, Reading, Unreadable, fit, parse, read_lines

SOURCE = "https://huggingface.co/datasets/livecodebench/code_generation_lite"
_FOLDERS = ("code/livecodebench", "livecodebench", "data", "")
FILES = ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl")
"""Files by release; each release contains the earlier ones."""
MAX_TEXT = 500_000
MAX_UNPACKED_BYTES = 256 * 2**20
_LIMITS = Limits(file_bytes=4 * 2**30, line_bytes=256 * 2**20)
"""Size limits of a file and a line: the published files have 0.1 to 1.3 gigabytes, and a line has
all tests of its problem."""
_IMPORTED = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random",
    "statistics", "itertools", "functools", "operator", "io", "sys", "json",
)  # fmt: skip
PREAMBLE = "\n".join(
    (
        *(f"from {name} import *" for name in (*_IMPORTED, "builtins", "typing")),
        *(f"import {name}" for name in _IMPORTED),
        "sys.setrecursionlimit(50000)",
    )
)
"""Code that its judge puts before every program (lcb_runner/evaluation/testing_util.py). The order
matters: the import of `builtins` restores `pow` and `open`, which other modules redefine."""
_STRINGS = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"})
_AROUND_A_STRING = frozenset({"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"})


class _Test(BaseModel):
    input: str
    output: str
    testtype: Literal["stdin", "functional"]


class _Row(BaseModel):
    question_id: str = Field(min_length=1, max_length=100)
    question_content: str = Field(min_length=1, max_length=MAX_TEXT)
    platform: str = Field(max_length=100)
    difficulty: str = Field(max_length=100)
    contest_date: datetime
    starter_code: str = Field(max_length=MAX_TEXT)
    public_test_cases: str
    private_test_cases: str
    metadata: str


def load(data: Path | None = None, file: str = FILES[0]) -> Reading[CodeProblem]:
    """Read every problem in file order. Raises DataError."""
    path = find(data_root("LiveCodeBench", data, SOURCE), _FOLDERS, file, SOURCE)
    return read_lines(path, lambda _, value: _problem(value), _LIMITS)


def _problem(value: Any) -> CodeProblem:
    row = fit(_Row, value)
    about = parse(row.metadata) if row.metadata else {}
    function = about.get("func_name") if isinstance(about, dict) else None
    public = _cases(row.public_test_cases, function)
    private = _cases(_private_cases(row.private_test_cases), function)
    if not public and not private:
        raise Unreadable("no tests")
    return validate_record(
        CodeProblem,
        id=f"livecodebench/{row.question_id}",
        statement=row.question_content,
        starter_code=row.starter_code,
        preamble=PREAMBLE,
        examples=public,
        tests=(*public, *private),
        difficulty=row.difficulty,
    )


def _cases(content: str, function: Any) -> tuple[CodeTest, ...]:
    cases = parse(content)
    if not isinstance(cases, list):
        raise Unreadable("not the expected fields", "the tests are not a list")
    return tuple(_case(fit(_Test, case), function) for case in cases)


def _case(test: _Test, function: Any) -> CodeTest:
    if test.testtype == "stdin":
        return validate_record(ProgramTest, stdin=test.input, stdout=test.output)
    if not isinstance(function, str) or not function:
        raise Unreadable("not the expected fields", "metadata.func_name: a function is called")
    # One argument per line, each in JSON.
    arguments = tuple(parse(line) for line in test.input.split("\n") if line.strip())
    return validate_record(
        CallTest, function=function, arguments=arguments, expected=parse(test.output)
    )


def _private_cases(content: str) -> str:
    try:
        parse(content)
    except Unreadable:
        return _unpack(content)
    return content


def _unpack(content: str) -> str:
    """Return the string in base64 of zlib of a pickle, whose opcodes are only read: nothing is
    loaded. Raises Unreadable."""
    try:
        packed = base64.b64decode(content, validate=True)
        unpacker = zlib.decompressobj()
        pickled = unpacker.decompress(packed, MAX_UNPACKED_BYTES)
    except (ValueError, zlib.error) as error:
        raise Unreadable("the private tests cannot be unpacked", str(error)) from error
    if unpacker.unconsumed_tail:
        raise Unreadable("the private tests are too large", f"over {MAX_UNPACKED_BYTES:,} bytes")
    text: str | None = None
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name in _STRINGS and text is None:
                text = str(argument)
            elif opcode.name not in _AROUND_A_STRING:
                raise Unreadable("the private tests are not a string", opcode.name)
    except ValueError as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable("the private tests cannot be unpacked", str(error)) from error
    if text is None:
        raise Unreadable("the private tests are not a string")
    return text
