"""Estimates with their intervals, as words and drawings: solved shares, and paired differences in
percentage points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from loopline.bench.report import figures as say
from loopline.bench.report import intervals
from loopline.bench.statistics import Interval


class Estimate(Protocol):
    """An `Interval`, or a record with the same fields."""

    @property
    def estimate(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def share(value: Estimate) -> str:
    """Format a share, such as `12.3 % (10.0 – 15.0)`."""
    return f"{say.share(value.estimate)} ({say.span(value.low, value.high)})"


def points(value: Estimate) -> str:
    """Format a difference in points, such as `+2.3 [+1.0, +3.5]`."""
    return f"{say.points(value.estimate)} [{say.points(value.low)}, {say.points(value.high)}]"


def solved_plot(arms: Iterable[tuple[str, Estimate, Sequence[float]]]) -> str:
    """Plot each arm's share, with its seeds as small dots."""
    lines = [
        intervals.Line(f"{name}: {share(value)}", _interval(value), f"arm-{at % 6}", tuple(seeds))
        for at, (name, value, seeds) in enumerate(arms)
    ]
    return intervals.shares_plot("Solved", lines, say.share)


def differences_plot(claims: Iterable[tuple[str, str, Estimate]]) -> str:
    """Plot paired differences between arms; grey if the interval contains zero."""
    lines = [
        intervals.Line(
            f"{first} − {second}: {points(gap)}",
            _interval(gap),
            intervals.certainty_class(_interval(gap)),
        )
        for first, second, gap in claims
    ]
    return intervals.differences_plot("Paired differences", lines, say.points)


def _interval(value: Estimate) -> Interval:
    return Interval(value.estimate, value.low, value.high)
