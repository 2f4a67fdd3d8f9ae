"""Tools that no worker runs: a call of one ends the role's step and hands sub-problems over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, Field

from loopline.agents.payloads import MAX_PARALLEL, MAX_PROBLEM_CHARS, ExpectedType
from loopline.agents.tools.declaration import Arguments, ToolDeclaration

A = TypeVar("A", bound=BaseModel)


class ProblemArguments(Arguments):
    """One sub-problem."""

    problem: str = Field(
        min_length=1,
        max_length=MAX_PROBLEM_CHARS,
        description="A complete problem with all numbers it needs; the solver sees nothing else",
    )
    expected_type: ExpectedType = Field(
        description="integer for a whole number, number for any number, text for anything else"
    )


class ProblemsArguments(Arguments):
    """Several sub-problems that do not depend on each other."""

    problems: list[ProblemArguments] = Field(min_length=1, max_length=MAX_PARALLEL)


@dataclass(frozen=True)
class HandOverTool(ToolDeclaration[A]):
    """A declaration together with the sub-problems that a call of it asks for."""

    problems: Callable[[A], tuple[ProblemArguments, ...]]

    def asked(self, arguments: A) -> tuple[ProblemArguments, ...]:
        """The sub-problems, in the order in which their answers are given back."""
        return self.problems(arguments)


def _single_problem(arguments: ProblemArguments) -> tuple[ProblemArguments, ...]:
    return (arguments,)


def _problem_list(arguments: ProblemsArguments) -> tuple[ProblemArguments, ...]:
    return tuple(arguments.problems)


delegate = HandOverTool(
    name="delegate",
    description="Hand one sub-problem to a small, fast math solver and get its answer.",
    arguments=ProblemArguments,
    problems=_single_problem,
)

delegate_many = HandOverTool(
    name="delegate_many",
    description=(
        "Hand several independent sub-problems to math solvers that work at the same time. "
        "Answers come back numbered, in the same order."
    ),
    arguments=ProblemsArguments,
    problems=_problem_list,
)
