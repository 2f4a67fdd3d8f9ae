"""Accuracy against dollars: the cost of each rule at the router's accuracy.

A baseline that is less accurate than the router is raised by sending some of its questions, at
random, to something better; a more accurate baseline is lowered the same way. So its price at equal
accuracy is a point on the lower hull of its own thresholds, the small model and the big one. If
even the hull's most accurate point is below the router, that point's price is used: a router that
costs less is then cheaper *and* right more often.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopline.agents.records import Record
from loopline.bench.route.splits import (
    BIG,
    ENTROPY,
    LADDER,
    LOGPROB,
    ORACLE,
    ROUTER,
    SMALL,
    Splits,
)
from loopline.trainers.router.fitting import Floats

RESAMPLES = 1000
MIXING = "mixing"
TITLES = {
    ROUTER: "the router",
    BIG: "the big model alone",
    SMALL: "the small model alone",
    MIXING: "mixing both at random",
    LADDER: "the fixed ladder (schema, arithmetic)",
    LOGPROB: "a threshold on the log-probability",
    ENTROPY: "a threshold on the entropy of the samples",
    ORACLE: "the oracle (a bound, not a baseline)",
}


class Estimate(Record):
    """Estimate with its 95 % interval, by bootstrap over questions."""

    estimate: float
    low: float
    high: float


class RuleFigures(Record):
    """Figures of one rule. Costs are in US dollars per question."""

    name: str
    accuracy: Estimate
    cost: Estimate


class Curve(Record):
    """One family of rules, by threshold, from the cheapest to the most expensive."""

    name: str
    accuracies: tuple[float, ...]
    costs: tuple[float, ...]
    """US dollars per question."""


class BaselineFigures(Record):
    """One baseline compared with the router, at the router's accuracy."""

    name: str
    cost_at_equal_accuracy: float
    """US dollars per question."""
    reaches_accuracy: bool
    cost_ratio: Estimate
    """Ratio of the router's cost to the baseline's: below 1 the router is cheaper."""


class Comparison(Record):
    """Figures of all rules."""

    rules: tuple[RuleFigures, ...]
    baselines: tuple[BaselineFigures, ...]
    curves: tuple[Curve, ...]
    best_baseline: str
    cost_vs_best_baseline: Estimate


def compare(splits: Splits, seed: int) -> Comparison:
    """Compare all rules over all splits; each question is weighted by the number of its tests."""
    levels = {
        family: [name for name in splits.rules if name.startswith(f"{family} ")]
        for family in (LOGPROB, ENTROPY)
    }
    names = [ROUTER, SMALL, BIG, LADDER, ORACLE, *levels[LOGPROB], *levels[ENTROPY]]
    sums = np.stack(
        [splits.tested]
        + [
            values
            for name in names
            for values in (splits.rules[name].right, splits.rules[name].cost)
        ],
        axis=1,
    )
    generator = np.random.Generator(np.random.PCG64(seed))
    count = len(sums)
    draws = generator.multinomial(count, [1 / count] * count, size=RESAMPLES) @ sums
    points = np.concatenate([sums.sum(axis=0, keepdims=True), draws])
    # Shape: resamples by rules by (accuracy, cost); the first resample is the estimate. A resample
    # may consist only of questions that no split has tested.
    tested = np.maximum(points[:, :1], 1e-12)
    means = (points[:, 1:] / tested).reshape(len(points), len(names), 2)
    of = {name: means[:, at] for at, name in enumerate(names)}
    families: dict[str, list[str]] = {
        BIG: [BIG], MIXING: [SMALL, BIG], LADDER: [SMALL, BIG, LADDER],
    }  # fmt: skip
    families |= {family: [SMALL, BIG, *rules] for family, rules in levels.items() if rules}
    # The small model alone is a baseline if it is at least as accurate as the router.
    if of[SMALL][0, 0] >= of[ROUTER][0, 0]:
        families[SMALL] = [SMALL]
    prices = {
        family: np.array(
            [
                _price([of[name][at] for name in members], of[ROUTER][at, 0])
                for at in range(len(points))
            ]
        )
        for family, members in families.items()
    }
    cost = of[ROUTER][:, 1]
    baselines = tuple(
        BaselineFigures(
            name=family,
            cost_at_equal_accuracy=float(values[0]),
            reaches_accuracy=max(of[name][0, 0] for name in families[family])
            >= of[ROUTER][0, 0] - 1e-12,
            cost_ratio=_estimate(_ratio(cost, values)),
        )
        for family, values in prices.items()
    )
    cheapest = np.min(np.stack([*prices.values()]), axis=0)
    return Comparison(
        rules=tuple(
            RuleFigures(
                name=name, accuracy=_estimate(of[name][:, 0]), cost=_estimate(of[name][:, 1])
            )
            for name in (ROUTER, BIG, SMALL, LADDER, ORACLE)
        ),
        baselines=baselines,
        curves=tuple(
            _curve(family, [of[name][0] for name in rules])
            for family, rules in levels.items()
            if rules
        ),
        best_baseline=min(prices, key=lambda family: float(prices[family][0])),
        cost_vs_best_baseline=_estimate(_ratio(cost, cheapest)),
    )


def _curve(name: str, points: Sequence[Floats]) -> Curve:
    ordered = sorted((float(cost), float(right)) for right, cost in points)
    return Curve(
        name=name,
        accuracies=tuple(right for _, right in ordered),
        costs=tuple(cost for cost, _ in ordered),
    )


def _price(points: Sequence[Floats], accuracy: float) -> float:
    """Return the lowest cost at which a mixture of the points reaches this accuracy."""
    best = float("inf")
    for right, cost in points:
        if right >= accuracy - 1e-12:
            best = min(best, float(cost))
        for other_right, other_cost in points:
            if right < accuracy < other_right:
                share = (accuracy - right) / (other_right - right)
                best = min(best, float(cost + share * (other_cost - cost)))
    if best < float("inf"):
        return best
    return float(max(points, key=lambda point: (point[0], -point[1]))[1])


def _ratio(cost: Floats, price: Floats) -> Floats:
    """Ratio of the costs; 1 where both are free."""
    return np.where(price > 0, cost / np.where(price > 0, price, 1.0), np.where(cost > 0, 1e9, 1.0))


def _estimate(values: Floats) -> Estimate:
    low, high = np.quantile(values[1:], (0.025, 0.975))
    return Estimate(estimate=float(values[0]), low=float(low), high=float(high))
