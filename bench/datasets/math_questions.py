"""Helpers shared by the readers of math problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AnswerKind = Literal["Numerical", "Expression", "Tuple", "Interval"]


@dataclass(frozen=True)
class MathQuestion:
    """A problem with its answer."""

    id: str
    question: str
    answer: str
    """Answer in a checker's form: a number, or LaTeX between dollar signs."""
    kind: AnswerKind = "Numerical"
    several: bool = False
    """Whether there are several answers."""
    unit: str | None = None
    """Unit of the answer; `answer` does not contain it."""
    subject: str = ""
    tolerance: float | None = None
    """Tolerance of a number, if the problem states one."""
    split: str = ""
    """Split of the problem, if the data set's problems come from several."""
