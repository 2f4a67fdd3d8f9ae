"""Whether a router in use still keeps its bound: a sequential test on audited runs.

Each audited run says whether the small answer was accepted and wrong, e = 1, or not, e = 0; one
that the present threshold would not accept counts as not accepted. Against
"the risk is at most alpha" a bettor stakes a share of its capital on each run: the capital is the
mean over several stakes b of the product of 1 + b (e - alpha). While the bound holds it is a
supermartingale that begins at 1, so it ever reaches 1 / delta with probability delta at most,
however often anyone looks (Ville 1939; Waudby-Smith and Ramdas 2024, arXiv 2010.09686). When it
does, the alarm is raised and the threshold is chosen again from the latest audited runs, never
below the present one; where these are too few for any, nothing is accepted until a router is
trained again. That threshold was chosen with the runs that raised the alarm, so it is watched, not
promised: the test begins from 1 with the runs that follow.

Nothing is kept but the router file: anyone who reads the store again comes to the same result, so a
watch that was killed goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loopline.agents.router.evidence import AnswerEvidence
from loopline.agents.router.router import Guarantee, Router
from loopline.trainers.core.disk_errors import guard_disk_writes
from loopline.trainers.core.json_records import read_record, write_record
from loopline.trainers.router.guarantee import allowed_errors
from loopline.trainers.router.labelled import BadLabels
from loopline.trainers.router.policy import most_lenient
from loopline.trainers.router.recorded import Audited, audited_runs

STAKES = (0.1, 0.25, 0.5, 0.75)
"""Shares of the largest stake that cannot ruin, 1 / alpha."""
WINDOW = 1_000
"""Latest audited runs that a threshold is chosen from."""


class Watch:
    """The capital of the bettor."""

    def __init__(self, alpha: float, delta: float) -> None:
        self._alpha = alpha
        self._stakes = np.array(STAKES) / alpha
        self._capital = np.ones(len(STAKES))
        self._limit = 1 / delta
        self.runs = 0
        self.errors = 0

    @property
    def capital(self) -> float:
        """Evidence against the bound; 1 at the beginning."""
        return float(self._capital.mean())

    def add(self, error: bool) -> bool:
        """One audited run; whether the alarm is raised."""
        self.runs += 1
        self.errors += error
        # Beyond any limit there is nothing to tell apart.
        won = self._capital * (1 + self._stakes * (float(error) - self._alpha))
        self._capital = np.minimum(won, 1e100)
        return self.capital >= self._limit


@dataclass(frozen=True)
class Watched:
    """What a look at the store came to."""

    router: Router
    runs: int
    """Audited runs since the test began."""
    errors: int
    capital: float
    alarm: str | None
    """The run at which the alarm was raised."""

    @property
    def summary(self) -> str:
        """One sentence."""
        promise = self.router.guarantee
        findings = f"{self.errors:,} of {self.runs:,} audited runs were accepted and wrong"
        if self.alarm is None:
            return (
                f"The bound of {promise.alpha:.1%} holds as far as can be told: {findings}; "
                f"evidence against it {self.capital:.2f}, alarm at {1 / promise.delta:.0f}."
            )
        new = (
            "nothing is accepted until a router is trained again"
            if self.router.threshold is None
            else f"the threshold is now {self.router.threshold:.4f}"
        )
        return (
            f"ALARM: the bound of {promise.alpha:.1%} is broken ({findings}, at run {self.alarm}): "
            f"{new}."
        )


def watch(path: Path, store: Path) -> Watched:
    """One look at the store. Tightens the router file if the alarm is raised. Raises BadLabels for
    a file that is no router, `UnreadableData` for a folder that is no store, OSError."""
    router = read_record(path, Router, "train it again with `train router`", BadLabels)
    findings = watched(router, audited_runs(store))
    if findings.alarm is not None:
        with guard_disk_writes(path):
            write_record(path, findings.router)
    return findings


def watched(router: Router, runs: Sequence[Audited]) -> Watched:
    """What the audited runs say of a router, in the order in which they were admitted."""
    promise = router.guarantee
    test = Watch(promise.alpha, promise.delta)
    for at, run in enumerate(runs):
        if run.run_id <= router.watched_after:
            continue
        accepted = run.accepted and _accepts(router, run.evidence)
        if test.add(accepted and run.wrong):
            window = runs[max(0, at + 1 - WINDOW) : at + 1]
            return Watched(
                _tightened(router, window), test.runs, test.errors, test.capital, run.run_id
            )
    return Watched(router, test.runs, test.errors, test.capital, None)


def _tightened(router: Router, window: Sequence[Audited]) -> Router:
    promise = router.guarantee
    scores = np.array([_score(router, run.evidence) for run in window])
    wrong = np.array([run.wrong for run in window])
    allowed = allowed_errors(len(window), promise.alpha, promise.delta)
    threshold = most_lenient(scores, wrong, allowed)
    if router.threshold is not None:
        threshold = max(threshold, float(np.nextafter(router.threshold, np.inf)))
    accepted = scores >= threshold
    if router.threshold is None or not accepted.any():
        threshold = np.inf
    return router.model_copy(
        update={
            "threshold": float(threshold) if np.isfinite(threshold) else None,
            "watched_after": window[-1].run_id,
            "alarms": router.alarms + 1,
            "guarantee": Guarantee(
                alpha=promise.alpha,
                delta=promise.delta,
                calibration=len(window),
                accepted=int(accepted.sum()),
                wrong=int((accepted & wrong).sum()),
                allowed=allowed,
            ),
        }
    )


def _accepts(router: Router, evidence: AnswerEvidence) -> bool:
    return router.judge(evidence).accepted and router.asks_small(evidence.question)


def _score(router: Router, evidence: AnswerEvidence) -> float:
    accepts = router.asks_small(evidence.question)
    return router.judge(evidence).score if accepts else float("-inf")
