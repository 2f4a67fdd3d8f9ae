"""Splits the same labelled questions at random many times. A router is trained on one part,
calibrated on the second, and compared with the alternatives on the third."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from loopline.agents.router.guarantee import delta_of_a_split, errors_within
from loopline.trainers.router.fitting import Floats
from loopline.trainers.router.policy import Policy, Rows, Table, learn_policy, outcomes
from loopline.trainers.router.training import parts

TRAIN, CALIBRATION = 0.4, 0.3
"""Shares of the questions; the rest is the test."""
LEVELS = 21
"""Number of thresholds of the baselines that use only log-probabilities, or only samples."""
MOST_LEARNED = 800
"""Maximum number of questions that a split learns from: fitting time grows with the third power."""
ROUTER, BIG, SMALL, LADDER, ORACLE = "router", "big", "small", "ladder", "oracle"
LOGPROB, ENTROPY = "logprob", "entropy"


@dataclass
class Sums:
    """Sums of one rule, question by question, over the splits whose test contained the question."""

    right: Floats
    cost: Floats

    def add(self, rows: Rows, right: Floats, cost: Floats) -> None:
        """Add the values of one split."""
        self.right[rows] += right
        self.cost[rows] += cost


@dataclass
class Splits:
    """Results of all splits."""

    questions: int
    tested: Floats
    """Number of tests that contained each question."""
    rules: dict[str, Sums] = field(default_factory=dict[str, Sums])
    scores: Floats = field(default_factory=lambda: np.zeros(0))
    """Sum, for each question, of the small model's expected success over routers that had not seen
    the question."""
    within_bound: int = 0
    """Number of splits in whose test the risk stayed within the bound."""
    splits: int = 0
    risks: list[float] = field(default_factory=list[float])
    accepted: list[float] = field(default_factory=list[float])
    paying: int = 0
    """Number of splits in which the trained router expected to pay off."""
    sampling: int = 0
    """Number of paying splits whose router draws further samples."""
    delta_of_a_split: float = 0.0

    def sums(self, rule: str) -> Sums:
        """Return the sums of a rule, created as 0 on first use."""
        empty = Sums(np.zeros(self.questions), np.zeros(self.questions))
        return self.rules.setdefault(rule, empty)


def play_splits(
    table: Table,
    questions: Rows,
    *,
    splits: int,
    alpha: float,
    delta: float,
    seed: int,
    checked: Floats,
    doubts: Mapping[str, Floats],
    threads: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> Splits:
    """Play every split. `questions`: numbers from `question_numbers`; all rows of a question are in
    one part of each split. `checked`: 1 where the fixed ladder accepts. `doubts`: baseline → its
    score of each small answer; each threshold on it is a rule. The results do not depend on
    `threads`.

    Raises `BadLabels` for fewer than three different questions."""
    count = len(table)
    results = Splits(count, np.zeros(count), scores=np.zeros(count))
    results.delta_of_a_split = delta_of_a_split(splits, delta)

    def learned(at: int) -> tuple[Policy, Rows, Rows]:
        generator = np.random.Generator(np.random.PCG64([seed, at]))
        sizes = [round(TRAIN * count), round((TRAIN + CALIBRATION) * count)]
        train, calibration, test = parts(questions, sizes, generator)
        train = train[:MOST_LEARNED]
        policy = learn_policy(
            table, train, calibration,
            alpha=alpha, delta=results.delta_of_a_split, future=len(test),
        )  # fmt: skip
        return policy, train, test

    # NumPy computes eigenvectors without holding the interpreter's lock.
    pool = ThreadPoolExecutor(threads)
    try:
        for at, (policy, train, test) in enumerate(pool.map(learned, range(splits))):
            _measure(results, table, policy, test, alpha)
            _measure_baselines(results, table, train, test, checked, doubts)
            progress(at + 1)
    finally:
        pool.shutdown(cancel_futures=True)
    return results


def _measure(results: Splits, table: Table, policy: Policy, test: Rows, alpha: float) -> None:
    right, cost = table.right[test], table.costs(test, samples=policy.samples)
    routed = outcomes(policy.score(table, test), policy.threshold, right, cost)
    results.sums(ROUTER).add(test, routed.right, routed.cost)
    results.tested[test] += 1
    results.scores[test] += policy.answer.predict(table.answers.take(test))[:, 0]
    wrong = int(routed.wrong.sum())
    results.splits += 1
    results.within_bound += wrong <= errors_within(len(test), alpha)
    results.risks.append(wrong / len(test))
    results.accepted.append(float(routed.accepted.mean()))
    results.paying += policy.pays
    results.sampling += policy.pays and policy.samples


def _measure_baselines(
    results: Splits,
    table: Table,
    train: Rows,
    test: Rows,
    checked: Floats,
    doubts: Mapping[str, Floats],
) -> None:
    right, cost = table.right[test], table.cost[test]
    for rule, at in ((SMALL, 0), (BIG, 1)):
        results.sums(rule).add(test, right[:, at], cost[:, at])
    ladder = outcomes(checked[test], 0.5, right, cost)
    results.sums(LADDER).add(test, ladder.right, ladder.cost)
    takes_big = (right[:, 1] > right[:, 0]).astype(np.float64)
    results.sums(ORACLE).add(
        test, np.maximum(right[:, 0], right[:, 1]),
        np.where(takes_big > 0, cost[:, 1], cost[:, 0]),
    )  # fmt: skip
    for rule, values in doubts.items():
        paid = table.costs(test, samples=rule == ENTROPY)
        for level, least in enumerate(np.quantile(values[train], np.linspace(0, 1, LEVELS))):
            at_level = outcomes(values[test], float(least), right, paid)
            results.sums(f"{rule} {level}").add(test, at_level.right, at_level.cost)
