"""Statistics of paired comparisons: intervals and exact tests
(`loopline.trainers.core.paired_statistics`), and their power, summed over the number of discordant
pairs; and intervals for systems trained from several seeds and tested on the same items.

Every arm answers the same questions, so differences are judged on pairs: items that one arm solves
and the other does not.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from loopline.trainers.core.paired_statistics import (
    CONFIDENCE,
    Interval,
    PairedTable,
    bootstrap_difference,
    check_probability,
    mcnemar_exact,
    paired_table,
    wilson,
)

__all__ = [
    "MAX_PAIRS", "Interval", "PairedTable", "Spread", "bootstrap_difference",
    "detectable_difference", "mcnemar_exact", "mcnemar_power", "mean_share", "paired_table",
    "pairs_needed", "pigeonhole_bootstrap", "quantile", "shares_of_seeds", "spread", "wilson",
]  # fmt: skip

MAX_PAIRS = 200_000
"""Largest sample that the power search considers; larger ones would show only irrelevant
effects."""


def mean_share(values: Sequence[float], *, seed: int = 0) -> Interval:
    """The mean of shares, one per item, with its 95 % percentile bootstrap interval over items.

    If all shares are equal, resampling shows no spread. Wilson's interval for 0 in n then bounds
    the uncertainty that n items leave: up to that share of all items may differ from these, at
    worst all with 0 or all with 1. For shares that are all 0 or all 1, the result is Wilson's own
    interval. NaN without values.

    Raises ValueError for equal values that are not shares.
    """
    if len(set(values)) != 1:
        return bootstrap_difference(values, [0.0] * len(values), seed=seed)
    share, n = values[0], len(values)
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies between 0 and 1; got {share}")
    return Interval(share, share * wilson(n, n).low, share + (1 - share) * wilson(0, n).high)


def pigeonhole_bootstrap(
    values: Sequence[Sequence[float]],
    *,
    resamples: int = 10_000,
) -> Interval:
    """The mean of a table of seeds (rows) by items (columns), with the interval in which the mean
    over other seeds and other items is expected, in the unit of the values. For differences, paired
    by seed and item, it is the interval of the mean difference.

    The pigeonhole bootstrap (Owen 2007, doi:10.1214/07-AOAS122; McCullagh 2000,
    doi:10.2307/3318577): seeds are drawn with replacement, items are drawn with replacement, and
    each resample is the mean of the cells where they cross. The seed-item interaction counts up to
    three times in its variance, so the interval tends to be too wide, not too narrow.

    Resampling few seeds spreads too little, so their effects are stretched by t / z · √(n / (n −
    1)), where t and z are the quantiles of Student's distribution with n − 1 degrees of freedom and
    of the normal one (Hesterberg 2015, doi:10.1080/00031305.2015.1089789, on the narrowness of
    percentile intervals): by 1.29 for 8 seeds, 2.69 for 3. A single seed shows no spread: it is
    held fixed, and the interval is only over items.

    Deterministic. If all values are equal, the interval has no width. NaN without values. Raises
    ValueError for rows of different lengths.
    """
    if len(set(map(len, values))) > 1:
        raise ValueError(
            "the seeds have different numbers of items: "
            + ", ".join(str(len(row)) for row in values)
        )
    if not values or not values[0]:
        return Interval(math.nan, math.nan, math.nan)
    from scipy.special import ndtri, stdtrit

    table = np.asarray(values, dtype=np.float64)
    seeds, items = table.shape
    mean = float(table.mean())
    # Items with equal columns become one column that is drawn more often.
    columns, counts = np.unique(table - mean, axis=1, return_counts=True)
    tail = (1 - CONFIDENCE) / 2
    drawn = np.random.Generator(np.random.PCG64(0))
    of_items = drawn.multinomial(items, counts / items, size=resamples) / items
    if seeds == 1:
        means = of_items @ columns[0]
    else:
        of_seeds = drawn.multinomial(seeds, [1 / seeds] * seeds, size=resamples) / seeds
        effects = columns @ counts / items
        narrow = stdtrit(seeds - 1, tail) / ndtri(tail) * math.sqrt(seeds / (seeds - 1))
        means = np.einsum("rs,sc,rc->r", of_seeds, columns, of_items, optimize=True)
        means += (narrow - 1) * (of_seeds @ effects)
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(mean, mean + float(low), mean + float(high))


def shares_of_seeds(outcomes: Sequence[str]) -> list[float]:
    """Return, for each item, the share of seeds that solved it, shape (items,).

    `outcomes`: one string per seed, over the same items in the same order, `1` where solved. Raises
    ValueError if seeds have different numbers of items.
    """
    return [marks.count("1") / len(outcomes) for marks in zip(*outcomes, strict=True)]


def mcnemar_power(n: int, only_a: float, only_b: float, alpha: float = 0.05) -> float:
    """Probability that the exact McNemar test rejects at `alpha` with n pairs.

    `only_a`, `only_b`: probability that only arm a, or only arm b, solves an item. Sums over the
    number of discordant pairs d ~ Binomial(n, only_a + only_b); given d, the count of a is
    Binomial(d, only_a / (only_a + only_b)), and the test rejects in both tails.
    """
    # Imported here because only a bench installation has it, and the import takes a second.
    from scipy.stats import binom

    _check_discordance(only_a, only_b)
    check_probability("alpha", alpha)
    if n < 0:
        raise ValueError(f"a sample size cannot be negative; got {n}")
    discordant = only_a + only_b
    if discordant == 0 or n == 0:
        return 0.0
    first, last = binom.ppf([1e-12, 1 - 1e-12], n, discordant)
    d = np.arange(first, last + 1)
    # Largest count of the smaller side that is still significant; -1 if none is.
    critical = binom.ppf(alpha / 2, d, 0.5)
    critical = np.where(2 * binom.cdf(critical, d, 0.5) <= alpha, critical, critical - 1)
    share = only_a / discordant
    rejected = binom.cdf(critical, d, share) + binom.sf(d - critical - 1, d, share)
    return min(1.0, float(binom.pmf(d, n, discordant) @ rejected))


def pairs_needed(
    only_a: float, only_b: float, *, power: float = 0.8, alpha: float = 0.05
) -> int | None:
    """The smallest number of pairs that reaches the power.

    Power grows with the number of pairs, except for small dips where the test's critical count
    stays the same; so a slightly smaller number may reach it, too. None if more than `MAX_PAIRS`
    would be needed, as with no difference at all.
    """
    _check_discordance(only_a, only_b)
    check_probability("power", power)
    if only_a == only_b:
        return None
    sizes = range(1, MAX_PAIRS + 1)
    at = bisect_left(sizes, power, key=lambda n: mcnemar_power(n, only_a, only_b, alpha))
    return sizes[at] if at < MAX_PAIRS else None


def detectable_difference(
    n: int, discordant: float, *, power: float = 0.8, alpha: float = 0.05
) -> float | None:
    """The smallest difference of accuracies that n pairs detect with the given power.

    `discordant`: share of items on which the arms differ. None if even the largest possible
    difference, the whole discordant share on one side, would be missed.
    """
    if mcnemar_power(n, discordant, 0.0, alpha) < power:
        return None
    low, high = 0.0, discordant
    while high - low > 1e-4:
        delta = (low + high) / 2
        if mcnemar_power(n, (discordant + delta) / 2, (discordant - delta) / 2, alpha) < power:
            low = delta
        else:
            high = delta
    return high


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile, interpolated linearly between the two nearest values as `numpy.quantile` does.
    `share` lies in [0, 1]. NaN without values."""
    return float(np.quantile(values, share)) if len(values) else math.nan


class Spread(NamedTuple):
    """Median, minimum and maximum of a figure measured several times."""

    median: float
    least: float
    greatest: float

    def text(self, form: str, between: str = " ") -> str:
        """Format the spread, such as `12 (10–15)`; `form` is a format specification, such as
        `,.0f`."""
        median, least, greatest = (format(value, form) for value in self)
        return f"{median}{between}({least}–{greatest})"


def spread(values: Sequence[float]) -> Spread:
    """Return the spread. Raises ValueError without values."""
    return Spread(quantile(values, 0.5), min(values), max(values))


def _check_discordance(only_a: float, only_b: float) -> None:
    if only_a < 0 or only_b < 0 or only_a + only_b > 1:
        raise ValueError(
            "the shares of items that only one arm solves must be at least 0 and sum to at "
            f"most 1; got {only_a} and {only_b}"
        )
