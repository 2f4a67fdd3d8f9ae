"""Sequential tests on audited runs of whether a router in use still keeps its bound.

Each audited run shows whether the small answer was accepted and wrong, e = 1, or not, e = 0; an
answer that the present threshold would not accept counts as not accepted.
`loopline.agents.sequential_test` tests "the risk is at most alpha": while it is true, the
probability that the capital ever reaches 1 / delta is at most delta, however often it is checked.
When it does, the alarm is raised and the threshold is chosen again from the latest audited runs,
never below the present one; if these are too few for any threshold, nothing is accepted until a
router is trained again. The new threshold was chosen with the runs that raised the alarm, so it is
watched, not guaranteed: the test restarts from 1 with the following runs.

The test counts the same evidence that the bound was calibrated on: if that was feedback, runs
without feedback wait.

Only the router file is kept: reading the store again gives the same result, so a watch that was
killed continues where it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loopline.agents.records import Trajectory
from loopline.agents.router.features import AnswerEvidence, comparable_answer
from loopline.agents.router.guarantee import allowed_errors, most_lenient
from loopline.agents.router.router import Guarantee, Router
from loopline.agents.router.rungs import logprobs_of
from loopline.agents.sequential_test import MeanTest

WINDOW = 1_000
"""Number of latest audited runs that a threshold is chosen from."""


@dataclass(frozen=True)
class Audited:
    """One audited run of a cascade."""

    run_id: str
    """Sorts by admission time."""
    accepted: bool
    """Whether the ladder accepted the small answer."""
    wrong: bool
    """Whether the small answer differs from the big one, or both are equal and feedback states that
    they are wrong."""
    evidence: AnswerEvidence
    has_feedback: bool = False
    """Whether there is feedback on the run's answer."""

    def judged(self, right: bool | None) -> Audited | None:
        """This run with feedback on whether its answer, which is the big model's, is `right`. None
        if nothing follows for the small answer: if one answer is wrong, another may be right."""
        if right is None:
            return self
        if right:
            return replace(self, has_feedback=True)
        return None if self.wrong else replace(self, wrong=True, has_feedback=True)


class Watch:
    """The capital of the bettor."""

    def __init__(self, alpha: float, delta: float) -> None:
        self._test = MeanTest(alpha, low=0.0)
        self._limit = 1 / delta
        self.runs = 0
        self.errors = 0

    @property
    def capital(self) -> float:
        """Evidence against the bound; 1 at the beginning."""
        return self._test.capital

    def add(self, error: bool) -> bool:
        """Add one audited run; return whether the alarm is raised."""
        self.runs += 1
        self.errors += error
        return self._test.add(float(error)) >= self._limit


@dataclass(frozen=True)
class Watched:
    """Result of checking the store."""

    router: Router
    runs: int
    """Audited runs since the test began."""
    errors: int
    capital: float
    alarm: str | None
    """The run at which the alarm was raised."""
    waiting: int
    """Audited runs since the test began that don't count until their feedback arrives."""

    @property
    def summary(self) -> str:
        """A one-sentence summary."""
        promise = self.router.guarantee
        findings = f"{self.errors:,} of {self.runs:,} audited runs were accepted and wrong"
        if self.waiting:
            findings += f"; {self.waiting:,} more wait for feedback"
        if self.alarm is None:
            return (
                f"The bound of {promise.alpha:.1%} holds as far as can be told: {findings}; "
                f"evidence against it {self.capital:.2f}, alarm at {1 / promise.delta:.0f}."
            )
        new = (
            "nothing is accepted until a new router is trained"
            if self.router.threshold is None
            else f"the threshold is now {self.router.threshold:.4f}"
        )
        return (
            f"ALARM: the bound of {promise.alpha:.1%} is broken ({findings}, at run {self.alarm}): "
            f"{new}."
        )


def watched(router: Router, runs: Sequence[Audited]) -> Watched:
    """Result of the audited runs for a router, in order of admission."""
    promise = router.guarantee
    test = Watch(promise.alpha, promise.delta)
    counted = [run for run in runs if run.has_feedback or not promise.by_feedback]
    waiting = sum(
        promise.by_feedback and not run.has_feedback and run.run_id > router.watched_after
        for run in runs
    )
    for at, run in enumerate(counted):
        if run.run_id <= router.watched_after:
            continue
        # The score is computed only if it matters: it takes a millisecond.
        if test.add(run.wrong and run.accepted and _accepts(router, run.evidence)):
            tightened = _tighten(router, counted[max(0, at + 1 - WINDOW) : at + 1])
            return Watched(tightened, test.runs, test.errors, test.capital, run.run_id, waiting)
    return Watched(router, test.runs, test.errors, test.capital, None, waiting)


def _tighten(router: Router, window: Sequence[Audited]) -> Router:
    promise = router.guarantee
    scores = [_score(router, run.evidence) for run in window]
    wrong = [run.wrong for run in window]
    allowed = allowed_errors(len(window), promise.alpha, promise.delta)
    threshold = most_lenient(scores, wrong, allowed)
    if router.threshold is not None:
        threshold = max(threshold, math.nextafter(router.threshold, math.inf))
    accepted = [score >= threshold for score in scores]
    if router.threshold is None or not any(accepted):
        threshold = math.inf
    return router.model_copy(
        update={
            "threshold": threshold if math.isfinite(threshold) else None,
            "watched_after": window[-1].run_id,
            "alarms": router.alarms + 1,
            "guarantee": Guarantee(
                alpha=promise.alpha,
                delta=promise.delta,
                calibration=len(window),
                accepted=sum(accepted),
                wrong=sum(map(min, accepted, wrong)),
                allowed=allowed,
                by_feedback=promise.by_feedback,
            ),
        }
    )


def _accepts(router: Router, evidence: AnswerEvidence) -> bool:
    return router.judge(evidence).accepted and router.asks_small(evidence.question)


def _score(router: Router, evidence: AnswerEvidence) -> float:
    accepts = router.asks_small(evidence.question)
    return router.judge(evidence).score if accepts else float("-inf")


def audited(trajectory: Trajectory) -> Audited:
    """An audited run of a cascade, judged without feedback."""
    steps = {step.agent: step for step in trajectory.steps if step.calls}
    first, big = steps["first"], steps["solo"].calls[-1]
    count = first.decision.data.get("samples", 0)
    samples = first.calls[len(first.calls) - count :] if isinstance(count, int) else ()
    small = first.calls[len(first.calls) - len(samples) - 1]
    return Audited(
        run_id=trajectory.run.id,
        accepted=first.decision.kind == "answer",
        wrong=comparable_answer(small.said) != comparable_answer(big.said),
        evidence=AnswerEvidence(
            trajectory.run.task.prompt,
            small.said,
            logprobs_of((small,)),
            tuple(call.said for call in samples),
        ),
    )
