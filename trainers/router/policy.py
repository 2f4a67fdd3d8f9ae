"""A router's decisions from labelled answers: learning, calibration and cost.

There are three disjoint sets of questions. The first determines the score, the gate, the price of
an error and whether further samples are worth drawing; the second determines the threshold, by the
number of errors that its exact test allows; the third, if there is one, is only for measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from loopline.agents.router.guarantee import allowed_errors, most_lenient
from loopline.trainers.router.fitting import (
    Features,
    Fit,
    Floats,
    area_under_curve,
    extract,
    learn,
)
from loopline.trainers.router.labelled import Labelled

Rows = NDArray[np.int64]
ERROR_PRICES = (0.0, 0.5, 1.0, 2.0, 4.0, 16.0)
GATES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75)
"""Shares of the questions that go to the big model directly."""
LEAST_QUESTIONS = 60
SIGNAL = 2.576
"""Required number of standard errors above one half: one in two hundred uninformative scores passes
by chance."""
AGREEMENT = "agreement."
"""Prefix of the features that need samples."""


@dataclass(frozen=True)
class Table:
    """Labelled questions as columns."""

    answers: Features
    questions: Features
    right: Floats
    """Correctness [questions, 2] of the small model and of the big one."""
    cost: Floats
    """Cost [questions, 2] in US dollars, of one answer each."""
    samples_cost: Floats
    """Cost of the small model's further answers, in US dollars."""
    has_samples: bool

    @classmethod
    def of(cls, rows: Sequence[Labelled]) -> Table:
        """Read the features, once for all splits."""
        evidence = [row.evidence for row in rows]
        return cls(
            extract(evidence),
            extract(evidence, question_only=True),
            np.array([[row.small_right, row.big_right] for row in rows], dtype=np.float64),
            np.array([[row.small_cost, row.big_cost] for row in rows], dtype=np.float64),
            np.array([row.samples_cost for row in rows], dtype=np.float64),
            any(row.evidence.samples for row in rows),
        )

    def prepared(self) -> Table:
        """The same table, prepared for many fits to parts of it."""
        return replace(
            self,
            answers=self.answers.with_likeness(),
            questions=self.questions.with_likeness(),
        )

    def __len__(self) -> int:
        return len(self.right)

    def costs(self, rows: Rows, *, samples: bool) -> Floats:
        """Costs [rows, 2] of these questions, with or without the samples."""
        cost = self.cost[rows]
        if samples:
            cost[:, 0] += self.samples_cost[rows]
        return cost


@dataclass(frozen=True)
class Policy:
    """Decision rule for every question. It may accept nothing, in which case it never asks the
    small model."""

    answer: Fit
    gate: Fit
    error_price: float
    gate_threshold: float
    threshold: float
    """Lowest score of an accepted answer; infinite: nothing is accepted."""
    pays: bool
    """Whether the policy saves money on the questions that it was learned from."""
    samples: bool = False
    """Whether further samples are drawn for each answer, since they are worth their price."""
    calibrated: int = 0
    accepted: int = 0
    wrong: int = 0
    allowed: int = -1

    def score(self, table: Table, rows: Rows) -> Floats:
        """Scores of the answers; minus infinity for questions that the small model does not get."""
        scores = _combined(self.answer.predict(table.answers.take(rows)), self.error_price)
        gates = _combined(self.gate.predict(table.questions.take(rows)), self.error_price)
        to_small = gates >= self.gate_threshold
        return np.where(to_small, scores, -np.inf)


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of a rule on several questions."""

    right: Floats
    cost: Floats
    accepted: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    """Whether an answer was accepted and is not right."""


def outcomes(scores: Floats, threshold: float, right: Floats, cost: Floats) -> Outcomes:
    """Outcomes for questions with these scores (minus infinity: the small model does not get
    it)."""
    accepted = scores >= threshold
    to_small = np.isfinite(scores) if np.isfinite(threshold) else np.zeros(len(scores), dtype=bool)
    return Outcomes(
        np.where(accepted, right[:, 0], right[:, 1]),
        to_small * cost[:, 0] + ~accepted * cost[:, 1],
        accepted,
        accepted & (right[:, 0] == 0),
    )


def learn_policy(
    table: Table,
    train: Rows,
    calibration: Rows,
    *,
    alpha: float,
    delta: float,
    future: int | None = None,
) -> Policy:
    """Learn and calibrate a policy. `future`: see `guarantee.allowed_errors`."""
    right = table.right[train]
    gate = learn(table.questions.to_learn(train), right)
    allowed = allowed_errors(len(calibration), alpha, delta, future)
    permitted = (allowed + 0.5) / max(1, len(calibration)) * len(train)
    answers = table.answers.to_learn(train)
    rate = _mixing_rate(right, table.cost[train])

    def learned(samples: bool) -> tuple[Fit, _Choice]:
        without = None if samples or not table.has_samples else AGREEMENT
        answer = learn(answers, right, without)
        cost = table.costs(train, samples=samples)
        return answer, _choose(answer, gate, right, cost, permitted, rate)

    samples = False
    answer, choice = learned(False)
    if table.has_samples:
        sampled, its_choice = learned(True)
        if its_choice.saving > choice.saving:
            samples, answer, choice = True, sampled, its_choice
    policy = Policy(
        answer, gate, choice.error_price, choice.gate_threshold, np.inf,
        pays=choice.saving > 0 and has_signal(answer.left_out, right), samples=samples,
        calibrated=len(calibration), allowed=allowed,
    )  # fmt: skip
    if allowed < 0 or not policy.pays:
        return policy
    scores = policy.score(table, calibration)
    wrong = table.right[calibration, 0] == 0
    threshold = max(choice.threshold, most_lenient(scores, wrong, allowed))
    accepted = scores >= threshold
    return replace(
        policy,
        threshold=threshold,
        accepted=int(accepted.sum()),
        wrong=int((accepted & wrong).sum()),
    )


def has_signal(scores: Floats, right: Floats) -> bool:
    """Whether leave-one-out scores distinguish right from wrong answers, of either model: the area
    under the curve exceeds one half by `SIGNAL` standard errors."""
    areas = (area_under_curve(scores[:, at], right[:, at] > 0) for at in (0, 1))
    return any(area - SIGNAL * error > 0.5 for area, error in areas)


@dataclass(frozen=True)
class _Choice:
    error_price: float
    gate_threshold: float
    threshold: float
    saving: float
    """US dollars per question at equal accuracy, compared with mixing at random."""


def _mixing_rate(right: Floats, cost: Floats) -> float:
    """Price in US dollars of one more right answer by random mixing of both models; 0 if the big
    model is not the better one."""
    (small, big), (cheap, expensive) = right.mean(axis=0), cost.mean(axis=0)
    return float((expensive - cheap) / (big - small)) if big > small else 0.0


def _choose(
    answer: Fit, gate: Fit, right: Floats, cost: Floats, permitted: float, rate: float
) -> _Choice:
    """The choice that saves most on the learning questions, each judged without itself.
    `permitted`: number of accepted wrong answers allowed among them; `rate`: see `_mixing_rate`."""
    count = len(right)
    best = _Choice(ERROR_PRICES[-1], -np.inf, np.inf, 0.0)
    for price in ERROR_PRICES:
        scores = _combined(answer.left_out, price)
        gates = _combined(gate.left_out, price)
        for share in GATES:
            least = -np.inf if share == 0 else float(np.quantile(gates, share))
            to_small = np.flatnonzero(gates >= least)
            order = to_small[np.argsort(-scores[to_small], kind="stable")]
            wrong = np.cumsum(right[order, 0] == 0)
            saved = np.cumsum(cost[order, 1])
            lost = np.cumsum(right[order, 1] - right[order, 0])
            # Lost accuracy is bought back at the rate of mixing; gained accuracy is not sold.
            saving = (saved - cost[to_small, 0].sum() - rate * np.maximum(0.0, lost)) / count
            saving = np.where(wrong <= permitted, saving, -np.inf)
            if len(saving) and saving.max() > best.saving:
                at = int(saving.argmax())
                best = _Choice(price, least, float(scores[order[at]]), float(saving[at]))
    return best


def _combined(expected: Floats, error_price: float) -> Floats:
    """`loopline.agents.router.router.combine` for many questions [questions, 2], the small model
    first."""
    return ((1 + error_price) * expected[:, 0] - expected[:, 1]) / (1 + error_price)
