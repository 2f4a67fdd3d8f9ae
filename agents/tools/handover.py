"""Tools that no worker runs: calling one ends the role's step and hands over sub-problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field

from loopline.agents.payloads import MAX_PARALLEL, MAX_PROBLEM_CHARS, ExpectedType
from loopline.agents.prompts import PromptSet
from loopline.agents.tools.declaration import Arguments, ToolDeclaration

A = TypeVar("A", bound=BaseModel)


class TaskArguments(Arguments):
    """One sub-task of any domain."""

    problem: str = Field(
        min_length=1,
        max_length=MAX_PROBLEM_CHARS,
        description="A complete task with every fact, text and number it needs; the model that "
        "does it sees nothing else",
    )
    expected_type: ExpectedType = Field(
        description="What the answer has to be: boolean is yes or no, date YYYY-MM-DD, list a JSON "
        "array, json a JSON object or array, text anything else"
    )


class TasksArguments(Arguments):
    """Several sub-tasks that do not depend on each other."""

    problems: list[TaskArguments] = Field(min_length=1, max_length=MAX_PARALLEL)


class ProblemArguments(Arguments):
    """One sub-problem."""

    problem: str = Field(
        min_length=1,
        max_length=MAX_PROBLEM_CHARS,
        description="A complete problem with all numbers it needs; the solver sees nothing else",
    )
    expected_type: Literal["integer", "number", "text"] = Field(
        description="integer for a whole number, number for any number, text for anything else"
    )


class ProblemsArguments(Arguments):
    """Several sub-problems that do not depend on each other."""

    problems: list[ProblemArguments] = Field(min_length=1, max_length=MAX_PARALLEL)


HandedOver = TaskArguments | ProblemArguments


@dataclass(frozen=True)
class HandOverTool(ToolDeclaration[A]):
    """A declaration, and the sub-problems that a call of it requests."""

    problems: Callable[[A], tuple[HandedOver, ...]]

    def asked(self, arguments: A) -> tuple[HandedOver, ...]:
        """The sub-problems, in the order in which their answers are returned."""
        return self.problems(arguments)


def _single_problem(arguments: HandedOver) -> tuple[HandedOver, ...]:
    return (arguments,)


def _problem_list(arguments: TasksArguments | ProblemsArguments) -> tuple[HandedOver, ...]:
    return tuple(arguments.problems)


delegate_task = HandOverTool(
    name="delegate",
    description="Hand one task to a small, fast model and get its answer.",
    arguments=TaskArguments,
    problems=_single_problem,
)

delegate_tasks = HandOverTool(
    name="delegate_many",
    description=(
        "Hand several independent tasks to small models that work at the same time. Answers come "
        "back numbered, in the same order."
    ),
    arguments=TasksArguments,
    problems=_problem_list,
)

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

HAND_OVER_TOOLS: dict[PromptSet, tuple[HandOverTool[Any], ...]] = {
    "general": (delegate_task, delegate_tasks),
    "mathematics": (delegate, delegate_many),
}
"""Hand-over tools by prompt set; the mathematical ones are as published."""
