"""A programming problem with the tests that decide whether a program solves it.

A problem belongs to the judge: its tests and solutions reach neither the bus nor a sandbox with a
candidate's program. Agents and the bus see only its `question`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from loopline.agents.environments.code.extraction import parse_program
from loopline.agents.records import Record

MAX_TEXT = 2_000_000
MAX_TESTS = 10_000


class ProgramTest(Record):
    """A test that runs a whole program: its input and expected output."""

    kind: Literal["program"] = "program"
    stdin: str = Field(max_length=MAX_TEXT)
    stdout: str = Field(max_length=MAX_TEXT)


class CallTest(Record):
    """A test that calls a function. `class Solution` is instantiated first if the program has
    one."""

    kind: Literal["call"] = "call"
    function: str = Field(min_length=1, max_length=200)
    arguments: tuple[JsonValue, ...]
    expected: JsonValue
    also_right: tuple[JsonValue, ...] = ()
    """Other right values."""


class AssertionTest(Record):
    """Statements that raise unless the program's functions behave as required."""

    kind: Literal["assertion"] = "assertion"
    source: str = Field(min_length=1, max_length=MAX_TEXT)


CodeTest = Annotated[ProgramTest | CallTest | AssertionTest, Field(discriminator="kind")]


class CodeQuestion(Record):
    """The part of a problem that a team sees, without its hidden tests."""

    id: str = Field(min_length=1, max_length=200)
    """Id, including the name of its data set: `mbpp/17`."""
    statement: str = Field(min_length=1, max_length=MAX_TEXT)
    starter_code: str = Field(default="", max_length=MAX_TEXT)
    """Code with which a program must start, or the head of the function that it must define."""
    examples: tuple[CodeTest, ...] = Field(default=(), max_length=MAX_TESTS)
    """Tests that the statement shows."""
    function: str | None = Field(default=None, min_length=1, max_length=200)
    """The function that is called; None if programs are run as a whole."""


class CodeProblem(Record):
    """A problem with its hidden tests."""

    id: str = Field(min_length=1, max_length=200)
    """Id, including the name of its data set: `mbpp/17`."""
    statement: str = Field(min_length=1, max_length=MAX_TEXT)
    starter_code: str = Field(default="", max_length=MAX_TEXT)
    """Code with which a program must start, or the head of the function that it must define."""
    preamble: str = Field(default="", max_length=MAX_TEXT)
    """Imports that a program may rely on; they run before it, separately."""
    examples: tuple[CodeTest, ...] = Field(default=(), max_length=MAX_TESTS)
    """Tests that the statement shows."""
    tests: tuple[CodeTest, ...] = Field(min_length=1, max_length=MAX_TESTS)
    """Golden tests, hidden from agents."""
    setup: str = Field(default="", max_length=MAX_TEXT)
    """Code that runs before each assertion, on the judge's side."""
    names: tuple[str, ...] = ()
    """Names that assertions take from the program; all other names are the judge's own."""
    solutions: tuple[str, ...] = ()
    """Golden programs, if there are any."""
    difficulty: str = Field(default="", max_length=100)
    wall_seconds: float | None = Field(default=None, gt=0)
    """Seconds for one test, as the problem states. The judge counts CPU seconds, and waits
    longer."""
    memory_bytes: int | None = Field(default=None, gt=0)

    @property
    def question(self) -> CodeQuestion:
        """The part of the problem that agents may see."""
        return CodeQuestion(
            id=self.id,
            statement=self.statement,
            starter_code=self.starter_code,
            examples=self.examples,
            function=self._function,
        )

    @property
    def _function(self) -> str | None:
        for test in self.tests:
            if isinstance(test, ProgramTest):
                return None
            if isinstance(test, CallTest):
                return test.function
        # A class among the names is for setup; the function is last in a golden program.
        return self.names[-1] if self.names else None

    @property
    def functions(self) -> frozenset[str]:
        """Functions and classes that tests require of a program; empty if it is run as a whole."""
        called = {test.function for test in self.tests if isinstance(test, CallTest)}
        return frozenset(called | set(self.names))


def assemble_program(problem: CodeProblem, code: str) -> str:
    """Return the program to test: the code itself if it is complete, else the starter code
    continued by it (a function's body, as HumanEval asks models to write)."""
    wanted = problem.functions
    if not problem.starter_code or not wanted or (wanted | {"Solution"}) & set(defined_names(code)):
        return code
    return problem.starter_code + code


def defined_names(source: str) -> tuple[str, ...]:
    """Return the names that a program defines at its top level, in order; none if it can't be
    parsed."""
    try:
        tree = parse_program(source)
    except ValueError:
        return ()
    return tuple(_bound_names(tree.body))


def _bound_names(body: Sequence[ast.stmt]) -> Iterable[str]:
    # An explicit stack: each `elif` is nested in the previous one, and there may be thousands.
    waiting = list(reversed(body))
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
        elif isinstance(statement, ast.If | ast.Try):
            waiting += reversed([*statement.body, *statement.orelse])
