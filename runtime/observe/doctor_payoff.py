"""Estimates from a deployment's recorded cascades whether delegation pays.

The ledger contains the cost of each question of a cascade. The cost of the big model alone is known
for questions that it answered: those that the ladder escalated, and a random sample of the others,
the audited ones (option `audit`). The mean of each group estimates the big model's cost for that
part of the questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, variance

from loopline.agents.records import Step, Trajectory
from loopline.agents.router.watching import audited
from loopline.bus.canaries import is_shadow
from loopline.runtime.observe.cost_words import format_dollars
from loopline.workers.router_watch import has_audit
from loopline.workers.store.recent import RecentRuns

DAYS = 30
LEAST_AUDITED = 20
"""Minimum number of audited answers: an interval from fewer is meaningless."""


@dataclass(frozen=True)
class Question:
    """One question of a cascade, in US dollars."""

    accepted: bool
    small: float
    big: float | None
    """US dollars for the big model; None if it was not asked."""
    differs: bool | None
    """Whether the big model's answer differs; None if the run was not audited."""


@dataclass(frozen=True)
class Payoff:
    """Cost of cascades compared with the big model alone."""

    questions: int
    audited: int
    """Number of accepted answers for which the big model was asked as well."""
    different: int
    """Number of audited answers from which the big model's answer differs."""
    paid: float
    """US dollars without the cost of audits."""
    alone: float
    low: float
    high: float
    """95 % interval of the savings."""

    @property
    def saved(self) -> float:
        return self.alone - self.paid

    def describe(self) -> str:
        """Describe the payoff in one sentence."""
        head = f"{self.questions:,} questions of cascades in {DAYS} days"
        if self.low > 0:
            verdict = "delegation pays"
        elif self.high < 0:
            verdict = "delegation does not pay"
        else:
            verdict = "it can't be told yet whether delegation pays"
        paid, alone, saved = map(format_dollars, (self.paid, self.alone, self.saved))
        return (
            f"{verdict}: {head} cost {paid}, with only the big model they would have cost"
            f" {alone} ({-self.saved / self.alone:+.0%}; saved {saved}, "
            f"95 % interval {self.low:,.4f} to {self.high:,.4f}); {self.different:,} of "
            f"{self.audited:,} audited answers of the small model differ from the big one's"
        )


def payoff_sentence(store: Path, now: float) -> str:
    """Describe the payoff in the store's runs, or what is missing to compute it."""
    recent = RecentRuns(store, now - DAYS * 86_400, question_of, "cascade")
    recent.read_new()
    questions = tuple(recent.runs.values())
    if not questions:
        return (
            "not known: no run of the workflow cascade is recorded; ask with --workflow cascade "
            "--option audit=0.1, or see `bench route`"
        )
    if not any(question.small or question.big for question in questions):
        return "not known: no pool of its models has a price; set [models.NAME.price]"
    checked = sum(question.accepted and question.big is not None for question in questions)
    if checked < LEAST_AUDITED:
        return (
            f"not known: of {len(questions):,} questions of cascades, {checked:,} accepted answers "
            f"were audited, and {LEAST_AUDITED} are needed; ask with --option audit=0.1"
        )
    if not any(question.big for question in questions):
        return "not known: the pool of the big model has no price; set [models.NAME.price]"
    return payoff(questions).describe()


def question_of(trajectory: Trajectory) -> Question | None:
    """Return the question of a run; None for a run that never asked the small model, and for a
    shadow."""
    steps = {step.agent: step for step in trajectory.steps if step.calls}
    if "first" not in steps or is_shadow(trajectory.run.id):
        return None
    big = steps.get("solo")
    return Question(
        accepted=steps["first"].decision.kind == "answer",
        small=_dollars(steps["first"]),
        big=None if big is None else _dollars(big),
        differs=audited(trajectory).wrong if has_audit(trajectory) else None,
    )


def payoff(questions: Sequence[Question]) -> Payoff:
    """Compute the payoff over questions, some of whose accepted answers were audited."""
    accepted = [question for question in questions if question.accepted]
    audits = [question.big for question in accepted if question.big is not None]
    escalated = [
        question.big for question in questions if not question.accepted and question.big is not None
    ]
    small = sum(question.small for question in questions)
    price = fmean(audits)
    savings = [(price if question.accepted else 0.0) - question.small for question in questions]
    error = math.sqrt(len(questions) * _variance(savings) + len(accepted) ** 2 * _error(audits))
    saved = math.fsum(savings)
    return Payoff(
        questions=len(questions),
        audited=len(audits),
        different=sum(bool(question.differs) for question in accepted),
        paid=small + sum(escalated),
        alone=len(accepted) * price + sum(escalated),
        low=saved - 1.96 * error,
        high=saved + 1.96 * error,
    )


def _variance(values: Sequence[float]) -> float:
    return variance(values) if len(values) > 1 else 0.0


def _error(values: Sequence[float]) -> float:
    """Return the variance of the mean of the values."""
    return _variance(values) / len(values)


def _dollars(step: Step) -> float:
    return sum(call.cost_micro_dollars for call in step.calls) / 1e6
