"""Trains one router from labelled answers, ready for use: learned on a part, calibrated on the
rest, written as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from loopline.agents.router.features import FEATURE_VERSION
from loopline.agents.router.router import Guarantee, Router
from loopline.trainers.router.fitting import area_under_curve, logistic_curve
from loopline.trainers.router.labelled import BadLabels, Labelled, require_enough, thinned
from loopline.trainers.router.policy import LEAST_QUESTIONS, Policy, Rows, Table, learn_policy


def question_numbers(rows: Iterable[Labelled]) -> Rows:
    """[rows] The same number, from 0, for rows of the same question."""
    numbers: dict[str, int] = {}
    return np.array(
        [numbers.setdefault(row.evidence.question, len(numbers)) for row in rows], dtype=np.int64
    )


def parts(questions: Rows, sizes: Sequence[int], generator: np.random.Generator) -> list[Rows]:
    """Rows in random order, split at `sizes` (rows up to each split, ascending), or as close to it
    as keeps rows of one question together. `questions`: see `question_numbers`.

    Raises `BadLabels` if rows share questions and there are fewer questions than parts: no part may
    be empty.
    """
    count, distinct = len(questions), len(np.unique(questions))
    if distinct == count:
        return np.split(generator.permutation(count).astype(np.int64), list(sizes))
    if distinct <= len(sizes):
        raise BadLabels(
            f"{distinct} different questions are too few for {len(sizes) + 1} parts: rows of one "
            "question stay together"
        )
    places = generator.permutation(int(questions.max()) + 1)
    order = np.argsort(places[questions], kind="stable").astype(np.int64)
    changes = np.flatnonzero(np.diff(questions[order])) + 1
    cuts: list[int] = []
    for left, size in zip(reversed(range(len(sizes))), sizes, strict=True):
        possible = changes[changes > (cuts[-1] if cuts else 0)]
        possible = possible[: len(possible) - left]  # the last ones are for later splits
        cuts.append(int(possible[np.argmin(np.abs(possible - size))]))
    return np.split(order, cuts)


LEARNED = 0.5
"""Share of the questions from which the score is learned; the rest calibrates."""
MOST_LEARNED = 2_000
"""Most questions from which the score is learned: its time grows with the third power."""
MOST_POINTS = 200
"""Most points of the curve that is drawn."""


def train_router(
    rows: Sequence[Labelled],
    *,
    alpha: float,
    delta: float,
    seed: int,
    where: str,
    watched_after: str = "",
    by_feedback: bool = False,
    notes: list[str] | None = None,
    draw: Callable[[int, dict[str, float]], None] | None = None,
) -> Router:
    """Train a router. Remarks about the questions are added to `notes`. `watched_after`: see
    `Router`; `by_feedback`: see `Guarantee`. `draw` receives the points of `risk_curve`. Raises
    BadLabels for too few questions."""
    require_enough(rows, LEAST_QUESTIONS, where)
    rows = thinned(rows, seed, [] if notes is None else notes)
    table = Table.of(rows)
    generator = np.random.Generator(np.random.PCG64(seed))
    learned = min(MOST_LEARNED, round(LEARNED * len(rows)))
    train, calibration = parts(question_numbers(rows), [learned], generator)
    with threadpool_limits(1, user_api="blas"):
        policy = learn_policy(table, train, calibration, alpha=alpha, delta=delta)
    if draw is not None:
        for accepted, values in risk_curve(policy, table, calibration, alpha=alpha):
            draw(accepted, values)
    router = router_of(policy, table, train, calibration, alpha=alpha, delta=delta)
    guarantee = router.guarantee.model_copy(update={"by_feedback": by_feedback})
    return router.model_copy(update={"watched_after": watched_after, "guarantee": guarantee})


def router_of(
    policy: Policy, table: Table, train: Rows, calibration: Rows, *, alpha: float, delta: float
) -> Router:
    """A policy as data."""
    slope, intercept = logistic_curve(policy.answer.left_out[:, 0], table.right[train, 0])
    expected = policy.answer.predict(table.answers.take(calibration))[:, 0]
    area, _ = area_under_curve(expected, table.right[calibration, 0] > 0)
    accepts = bool(np.isfinite(policy.threshold))
    gated = accepts and bool(np.isfinite(policy.gate_threshold))
    return Router(
        feature_version=FEATURE_VERSION,
        guarantee=Guarantee(
            alpha=alpha,
            delta=delta,
            calibration=policy.calibrated,
            accepted=policy.accepted,
            wrong=policy.wrong,
            allowed=policy.allowed,
        ),
        scorer=policy.answer.scorer(policy.error_price),
        threshold=policy.threshold if accepts else None,
        gate=policy.gate.scorer(policy.error_price) if gated else None,
        gate_threshold=policy.gate_threshold if gated else 0.0,
        slope=slope,
        intercept=intercept,
        trained_on=len(train),
        auc=area,
        pays=policy.pays,
        needs_samples=policy.samples,
    )


def risk_curve(
    policy: Policy, table: Table, calibration: Rows, *, alpha: float
) -> Iterator[tuple[int, dict[str, float]]]:
    """Shares of all calibration questions, and US dollars per question, by the number of answers
    with the highest scores that are accepted. Answers with equal scores are accepted together;
    at most `MOST_POINTS` points."""
    scores, count = policy.score(table, calibration), len(calibration)
    if count == 0:
        return
    right, cost = table.right[calibration], table.cost[calibration]
    order = np.argsort(-scores, kind="stable")
    order = order[np.isfinite(scores[order])]  # minus infinity: never given to the small model
    wrong = np.concatenate([[0.0], np.cumsum(right[order, 0] == 0)])
    saved = np.concatenate([[0.0], np.cumsum(cost[order, 1])])
    dollars = (cost[:, 1].sum() + cost[order, 0].sum() - saved) / count
    ends = [0, *(np.flatnonzero(np.diff(scores[order])) + 1).tolist(), len(order)]
    every = -(-len(ends) // MOST_POINTS)
    for at in sorted({*ends[::every], ends[-1]}):
        yield (
            at,
            {
                "share accepted": at / count,
                "share accepted and wrong": float(wrong[at]) / count,
                "bound of that share": alpha,
                "dollars per question": float(dollars[at]),
            },
        )


def describe(router: Router) -> str:
    """The router in one sentence."""
    promise = router.guarantee
    if router.threshold is None:
        why = (
            f"{promise.calibration:,} calibration questions are too few for a bound of "
            f"{promise.alpha:.1%}"
            if promise.allowed < 0
            else "asking the small model first saved nothing on the questions that it learned from"
            if not router.pays
            else "no threshold keeps the bound"
        )
        return f"The router accepts nothing, so every question goes to the big model: {why}."
    return (
        f"The router accepts {promise.accepted / max(1, promise.calibration):.1%} of the answers; "
        f"the share of all questions whose small answer is accepted and wrong is at most "
        f"{promise.alpha:.1%} with probability {1 - promise.delta:.1%} ({promise.wrong:,} of "
        f"{promise.calibration:,} calibration questions; up to {promise.allowed:,} allowed)."
        + (" It reads further samples: set the option `samples`." if router.needs_samples else "")
    )


def first_run_id(seconds: float) -> str:
    """Smallest id of the runs that are admitted from that Unix time on (a UUID of version 7 starts
    with its milliseconds)."""
    digits = f"{int(seconds * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"
