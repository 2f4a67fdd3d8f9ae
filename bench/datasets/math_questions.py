"""Shared parts of the readers of mathematics."""

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
    """Answer in the form that a checker takes: a number, or LaTeX between dollar signs."""
    kind: AnswerKind = "Numerical"
    several: bool = False
    """Whether the answer consists of several."""
    unit: str | None = None
    """Unit of the answer, which does not contain it."""
    subject: str = ""
    tolerance: float | None = None
    """Tolerance of a number, where the problem states one."""
    split: str = ""
    """Split of the data set, where its problems come from several."""
