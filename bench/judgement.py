"""A judge's verdict on one finished run, and the interface of a judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from loopline.agents.answers import final_text
from loopline.agents.records import JsonObject, Outcome, Trajectory

ENDED_WITH_AN_ANSWER = (Outcome.ANSWERED, Outcome.SOLVED, Outcome.FAILED)


@dataclass(frozen=True)
class Judgement:
    """Verdicts and the evidence for them."""

    verdicts: dict[str, bool]
    """Verdict by checker, the primary one first."""
    prediction: str | None
    """The model's text that was judged; None if there is none."""
    answer: str = ""
    """Parsed answer, in the form that lists show."""
    value: str | None = None
    where: str = ""
    signals: tuple[str, ...] = ()
    """Facts for the failure taxonomy."""
    measures: dict[str, float] = field(default_factory=dict[str, float])
    detail: str = ""
    """Description of the fault; empty for a right answer."""


class Question(Protocol):
    """Facts that a judge knows about an item."""

    @property
    def id(self) -> str: ...

    @property
    def question(self) -> str: ...

    @property
    def gold(self) -> str: ...

    @property
    def about(self) -> JsonObject: ...


class Judge(Protocol):
    """Judges runs; called from one thread at a time."""

    def judge(self, trajectory: Trajectory, question: Question) -> Judgement: ...


def prediction_of(trajectory: Trajectory) -> str | None:
    """Return the text that the answer checkers read: the last completion of a run that ended with
    an answer."""
    if trajectory.outcome not in ENDED_WITH_AN_ANSWER:
        return None
    return final_text(trajectory)
