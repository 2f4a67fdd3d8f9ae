"""Further measures: means with bootstrap intervals, paired differences, and the win rate of two
arms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loopline.bench.results import Result
from loopline.bench.statistics import Interval, bootstrap_difference, mean_share

if TYPE_CHECKING:
    from loopline.bench.report.facts import Facts

CALLS = "calls"
MEANINGS = {
    "plan_accuracy": "Plan ACC: the reference's decision, over all steps",
    "action_match": "Act EM: the reference's tool, over the steps where it calls",
    "hallucination": "a tool is named that was not offered",
    "argument_f1": "argument F1, over the steps where the reference calls",
    "rouge_l": "Rouge-L of the answer, over the steps where the reference finishes",
    "score": "the score of an answer, from 0 to 1",
    CALLS: "calls in a run",
    "turns": "turns played",
    "moves_over_shortest": "moves of a solution beyond those of the shortest one",
    "refused": "actions on the real state that were refused, in whole or in part",
    "agreement": "proposals that the plan agent carried out exactly; one that always agrees adds "
    "nothing",
}

SHARES = frozenset({
    "plan_accuracy", "action_match", "hallucination", "argument_f1", "rouge_l", "refused",
    "agreement", "agreed", "pass_rate", "right_tests", "score",
})  # fmt: skip
"""Measures between 0 and 1; all others are numbers with a unit."""


def measured_results(results: Sequence[Result], seed: int) -> dict[str, Any]:
    """Return each measure's mean over the items that it applies to, with the interval and the
    number of items."""
    return {
        name: _mean(name, [r.measures[name] for r in results if name in r.measures], seed)
        for name in _names(results)
    }


def measured_pair(a: Sequence[Result], b: Sequence[Result], seed: int) -> dict[str, Any]:
    """Return differences of the means over the items that both arms have, in the same order; empty
    without measures. The win rate is added if runs are measured in calls."""
    if not _names(a):
        return {}
    measures: dict[str, Any] = {}
    for name in _names([*a, *b]):
        both = [(x.measures[name], y.measures[name]) for x, y in zip(a, b, strict=True)
                if name in x.measures and name in y.measures]  # fmt: skip
        difference = bootstrap_difference([x for x, _ in both], [y for _, y in both], seed=seed)
        measures[name] = _summary(len(both), difference)
    if CALLS not in measures:
        return {"measures": measures}
    wins = [win(x, y) for x, y in zip(a, b, strict=True)]
    return {"measures": measures, "win_rate": _summary(len(wins), mean_share(wins, seed=seed))}


def win(a: Result, b: Result) -> float:
    """Return 1 where `a` wins, 0 where `b` does, ½ for a tie. The only run that solves the task
    wins; if both solve it, the run with fewer calls wins; two failures tie."""
    if a.right != b.right:
        return float(a.right)
    calls_a, calls_b = a.measures[CALLS], b.measures[CALLS]
    return 0.5 if not a.right or calls_a == calls_b else float(calls_a < calls_b)


def names_of(facts: Facts) -> list[str]:
    """Return every measure of a report, in its judge's order."""
    return _names([result for arm in facts.arms for result in arm.results])


def pair_rows(pair: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Rows of a pair: the differences, and the first arm's win rate at the end."""
    rate = pair.get("win_rate")
    differences = [
        (f"difference of {name}", summary) for name, summary in pair.get("measures", {}).items()
    ]
    return [*differences, *([] if rate is None else [(f"win rate of {pair['a']}", rate)])]


def format_summary(summary: dict[str, Any]) -> str:
    """Format a mean with its interval."""
    if summary["estimate"] is None:
        return "–"
    interval = f"[{summary['low']:.3f}, {summary['high']:.3f}]"
    return f"{summary['estimate']:.3f} {interval}, n = {summary['n']:,}"


def _names(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(name for result in results for name in result.measures))


def _mean(name: str, values: Sequence[float], seed: int) -> dict[str, Any]:
    if name in SHARES:
        return _summary(len(values), mean_share(values, seed=seed))
    return _summary(len(values), bootstrap_difference(values, [0.0] * len(values), seed=seed))


def _summary(n: int, interval: Interval) -> dict[str, Any]:
    return {"n": n, **_interval_fields(interval)}


def _interval_fields(interval: Interval) -> dict[str, float | None]:
    # The mean over no items is NaN, which is not JSON.
    values = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
    return {name: None if value != value else value for name, value in values.items()}
