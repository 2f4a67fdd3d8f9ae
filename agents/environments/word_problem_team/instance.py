"""An instance of a word problem: its text, and the calculations that solve it."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from typing import Self

from pydantic import Field, model_validator

from loopline.agents.environments.puzzle_splits import Split, content_hash
from loopline.agents.environments.team_episode import Setting
from loopline.agents.environments.word_problem_team.numbers import numbers_of
from loopline.agents.environments.word_problems import Wording, WordProblem, schemes
from loopline.agents.environments.word_problems.scheme import Operator, apply
from loopline.agents.environments.word_problems.story import MAX_INTERMEDIATE
from loopline.agents.records import Record, Task

ENVIRONMENT = "word_problems"
LARGEST = MAX_INTERMEDIATE
"""Largest number in an equation, for operands and results."""
MAX_PROMPT_CHARS = 4_000
MOST_EQUATIONS = 16
_HELD_BACK_EVERY = 8


@cache
def constants() -> frozenset[int]:
    """Numbers that calculations may use even if the text does not have them: the minutes of an
    hour, a dozen, the hundred of percent."""
    return frozenset(
        int(side)
        for scheme in schemes()
        for part in scheme.parts
        for step in part.operations
        for side in (step.left, step.right)
        if side.isdigit()
    )


class WordProblemSetting(Setting):
    """Setting of a word problem: how it is shown and played."""

    named: bool = False
    """Whether every number in the text gets a name for calculations, `n1=48`, for models too small
    to copy digits."""


class Equation(Record):
    """`left operator right = result`, in whole numbers."""

    left: int = Field(ge=1, le=LARGEST)
    operator: Operator
    right: int = Field(ge=1, le=LARGEST)
    result: int = Field(ge=1, le=LARGEST)


class WordProblemInstance(Record):
    """A problem: the content of `records.Task.instance`. It includes the solution, for rewards and
    for verification; observations never show any of it."""

    text: str = Field(min_length=1, max_length=MAX_PROMPT_CHARS)
    solution: tuple[Equation, ...] = Field(min_length=1, max_length=MOST_EQUATIONS)
    """Equations in order, each with available numbers. The last result is the answer."""
    wordings: tuple[str, ...] = ()
    """Ids of the wordings in order; empty for a problem that is not generated."""
    setting: WordProblemSetting = WordProblemSetting()

    @model_validator(mode="after")
    def _check_equations(self) -> Self:
        available_values = {number.value for number in numbers_of(self.text)} | constants()
        for place, step in enumerate(self.solution, 1):
            strange = next(
                (side for side in (step.left, step.right) if side not in available_values), None
            )
            if strange is not None:
                raise ValueError(
                    f"equation {place} has {strange}, which is not a number of the text, not an "
                    f"earlier result and none of {', '.join(map(str, sorted(constants())))}"
                )
            if apply(step.operator, Fraction(step.left), Fraction(step.right)) != step.result:
                raise ValueError(f"equation {place} is wrong")
            available_values.add(step.result)
        return self

    @classmethod
    def of(cls, problem: WordProblem, setting: WordProblemSetting) -> Self:
        """Return the instance of a generated problem."""
        return cls(
            text=problem.prompt,
            solution=tuple(
                Equation(
                    left=equation.left,
                    operator=equation.op,
                    right=equation.right,
                    result=equation.result,
                )
                for link in problem.links
                for part in link.parts
                for equation in part.equations
            ),
            wordings=tuple(problem.wording.split("+")),
            setting=setting,
        )

    @property
    def answer(self) -> int:
        return self.solution[-1].result

    @property
    def split(self) -> Split | None:
        """Split of the problem, by its wordings; None for a mixture, which no generator creates,
        and for wordings of another version."""
        try:
            return split_of_wordings(self.wordings)
        except KeyError:
            return None

    @property
    def id(self) -> str:
        """First 16 hex digits of the text's SHA-256."""
        return content_hash(self.text)[:16]

    @property
    def task(self) -> Task:
        """The task record."""
        return Task(
            environment=ENVIRONMENT, instance=self.model_dump(mode="json"), prompt=self.text
        )


def split_of_wording(wording: Wording) -> Split:
    """Return the split of a wording: `test` for those that the generator keeps away from training
    (every fifth). One in eight of the others, by the hash of its id, is for choosing settings."""
    if wording.held_out:
        return Split.TEST
    part = int(content_hash(wording.id)[:8], 16) % _HELD_BACK_EVERY
    return Split.VALIDATION if part == 0 else Split.TRAIN


def split_of_wordings(ids: Iterable[str]) -> Split | None:
    """Return the common split of these wordings; None if they belong to several. Raises KeyError
    for an unknown id."""
    splits = {_splits()[wording_id] for wording_id in ids}
    return splits.pop() if len(splits) == 1 else None


@cache
def _splits() -> dict[str, Split]:
    return {
        wording.id: split_of_wording(wording) for scheme in schemes() for wording in scheme.wordings
    }
