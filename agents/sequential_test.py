"""A test of a mean that may be checked after every value, any number of times.

To test "the mean is at most `bound`", a bettor stakes a share of its capital on each value: the
capital is the mean over several stakes s of the product of 1 + s (x - bound) / (bound - low), where
no value is below `low`. As long as the conditional mean of each value, given the earlier ones, is
at most `bound`, the capital is a supermartingale that starts at 1, so the probability that it ever
reaches 1 / delta is at most delta, however often it is checked (Ville 1939; Waudby-Smith and Ramdas
2024, arXiv 2010.09686).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STAKES = (0.1, 0.25, 0.5, 0.75)
"""Shares of the largest stake that cannot ruin the bettor, 1 / (bound - low)."""
FINE_STAKES = (0.02, 0.05, *STAKES)
"""Stakes including smaller ones, for values that vary far more than their mean differs from the
bound."""
MOST_CAPITAL = 1e100
"""Largest capital: beyond it, differences do not matter."""
_HALVINGS = 16


class MeanTest:
    """The capital of a bet that the mean is above `bound`."""

    def __init__(self, bound: float, *, low: float, stakes: Sequence[float] = STAKES) -> None:
        """`low` is the smallest possible value. Raises ValueError for a bound that is not above
        it."""
        if not low < bound:
            raise ValueError(f"the bound, {bound}, must be above the minimum, {low}")
        self._bound, self._low = bound, low
        self._stakes = tuple(stake / (bound - low) for stake in stakes)
        self._capitals = [1.0] * len(self._stakes)
        self.values = 0
        self.most = 1.0
        """Greatest capital so far, which decides the test."""

    @property
    def capital(self) -> float:
        """Evidence against "the mean is at most the bound"; 1 at the start."""
        return sum(self._capitals) / len(self._capitals)

    def add(self, value: float) -> float:
        """Add one value; returns the capital. Raises ValueError for a value below the minimum."""
        if not value >= self._low:
            raise ValueError(f"the value {value} is below the minimum, {self._low}")
        self.values += 1
        gain = value - self._bound
        self._capitals = [
            min(MOST_CAPITAL, capital * (1 + stake * gain))
            for capital, stake in zip(self._capitals, self._stakes, strict=True)
        ]
        capital = self.capital
        self.most = max(self.most, capital)
        return capital


@dataclass(frozen=True)
class Interval:
    """Bounds of a mean."""

    low: float
    high: float


def mean_interval(values: Iterable[float], delta: float) -> Interval:
    """Confidence interval of the mean of values from -1 to 1: it contains the mean with probability
    1 - `delta`, even if the number of values was chosen by looking at them."""
    numbers = tuple(values)
    return Interval(
        low=_lower_bound(numbers, delta / 2),
        high=-_lower_bound(tuple(-number for number in numbers), delta / 2),
    )


def _lower_bound(values: Sequence[float], delta: float) -> float:
    """The greatest bound that a test of this level rejects; -1 if it rejects none. The capital
    decreases as the bound increases, so bisection finds it."""
    low, high = -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        test = MeanTest(middle, low=-1.0, stakes=FINE_STAKES)
        if any(test.add(value) >= 1 / delta for value in values):
            low = middle
        else:
            high = middle
    return low
