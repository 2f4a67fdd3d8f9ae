"""The statistics of a paired comparison: intervals and exact tests (`trainers.paired_statistics`),
and their power, by summing over the number of discordant pairs.

Every arm answers the same questions, so differences are judged on pairs: what one arm solves and
the other does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from trainers.paired_statistics import (
    Interval,
    PairedTable,
    bootstrap_difference,
    check_probability,
    mcnemar_exact,
    paired_table,
    wilson,
)

__all__ = [
    "MAX_PAIRS", "Interval", "PairedTable", "bootstrap_difference", "detectable_difference",
    "mcnemar_exact", "mcnemar_power", "mean_share", "paired_table", "pairs_needed", "quantile",
    "shares_of_seeds", "wilson",
]  # fmt: skip

MAX_PAIRS = 200_000
"""Largest sample that the power search considers; beyond it an effect is of no interest."""


EXACT_DISCORDANT = 1_500
"""Up to so many expected discordant pairs power is summed exactly; beyond, by Connor's formula,
which by then is within a point of it."""


def mean_share(values: Sequence[float], *, seed: int = 0) -> Interval:
    """The mean of shares, one of each item, with its 95 % percentile bootstrap interval over items.

    Where all are equal, drawing from them tells no spread. What n items leave open is then told by
    Wilson's interval of 0 in n: up to that share of all items may be unlike these, at worst all 0
    or all 1. For shares that are all 0 or all 1 this is Wilson's own interval. NaN without values.

    Raises ValueError for equal values that are no shares.
    """
    if len(set(values)) != 1:
        return bootstrap_difference(values, [0.0] * len(values), seed=seed)
    share, n = values[0], len(values)
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies between 0 and 1; got {share}")
    return Interval(share, share * wilson(n, n).low, share + (1 - share) * wilson(0, n).high)


def shares_of_seeds(outcomes: Sequence[str]) -> list[float]:
    """Of each item, the share of the seeds that solved it.

    `outcomes`: of each seed, the same items in the same order, `1` where solved. Raises ValueError
    for seeds of different numbers of items.
    """
    return [marks.count("1") / len(outcomes) for marks in zip(*outcomes, strict=True)]


def mcnemar_power(n: int, only_a: float, only_b: float, alpha: float = 0.05) -> float:
    """Probability that the exact McNemar test rejects at `alpha` with n pairs.

    `only_a`, `only_b`: probability that an item is solved by one arm alone. Sums over the number
    of discordant pairs d ~ Binomial(n, only_a + only_b); given d, the count of a is
    Binomial(d, only_a / (only_a + only_b)), and the test rejects in both tails.
    """
    _check_discordance(only_a, only_b)
    check_probability("alpha", alpha)
    if n < 0:
        raise ValueError(f"a sample has no negative size; got {n}")
    discordant = only_a + only_b
    if discordant == 0 or n == 0:
        return 0.0
    if n * discordant > EXACT_DISCORDANT:
        return _connor_power(n, discordant, abs(only_a - only_b), alpha)
    share = only_a / discordant
    spread = 10 * math.sqrt(n * discordant * (1 - discordant)) + 10
    first = max(0, math.floor(n * discordant - spread))
    last = min(n, math.ceil(n * discordant + spread))
    power = 0.0
    critical = -1
    for d in range(first, last + 1):
        critical = _critical(d, alpha, critical if d > first else None)
        if critical < 0:
            continue
        weight = _binomial(n, d, discordant)
        rejected = sum(
            _binomial(d, k, share) + _binomial(d, d - k, share) for k in range(critical + 1)
        )
        power += weight * rejected
    return min(1.0, power)


def pairs_needed(
    only_a: float, only_b: float, *, power: float = 0.8, alpha: float = 0.05
) -> int | None:
    """The smallest number of pairs (to 1 %) whose exact test has the power asked for.

    Starts from Connor's approximation (Biometrics 1987) and searches on the exact power; None
    when more than `MAX_PAIRS` would be needed, as with no difference at all.
    """
    _check_discordance(only_a, only_b)
    check_probability("power", power)
    delta, discordant = abs(only_a - only_b), only_a + only_b
    if delta == 0:
        return None
    z_alpha, z_beta = NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(power)
    root = math.sqrt(max(0.0, discordant - delta * delta))
    guess = max(2, math.ceil((z_alpha * math.sqrt(discordant) + z_beta * root) ** 2 / delta**2))
    if guess > MAX_PAIRS:
        return None
    low, high = 1, guess
    while mcnemar_power(high, only_a, only_b, alpha) < power:
        low, high = high, math.ceil(high * 1.25) + 1
        if high > MAX_PAIRS:
            return None
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        if mcnemar_power(middle, only_a, only_b, alpha) < power:
            low = middle
        else:
            high = middle
    return high


def detectable_difference(
    n: int, discordant: float, *, power: float = 0.8, alpha: float = 0.05
) -> float | None:
    """The smallest difference of accuracies that n pairs show with the power asked for.

    `discordant`: share of items on which the arms differ. None when even the largest possible
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
    """Linear-interpolated quantile; nan without values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def _critical(d: int, alpha: float, previous: int | None) -> int:
    """The largest count of the smaller side that is still significant; -1 if none is."""
    # The critical count grows by at most one per pair, so the search starts at the last one.
    count = -1 if previous is None else max(-1, previous - 1)
    while 2 * (count + 1) < d and mcnemar_exact(count + 1, d - count - 1) <= alpha:
        count += 1
    return count


def _connor_power(n: int, discordant: float, delta: float, alpha: float) -> float:
    """Normal approximation of the power (Connor 1987), the far tail left out."""
    z = NormalDist().inv_cdf(1 - alpha / 2)
    variance = discordant - delta * delta
    if variance <= 0:
        return 1.0
    distance = delta * math.sqrt(n) - z * math.sqrt(discordant)
    return NormalDist().cdf(distance / math.sqrt(variance))


def _binomial(n: int, k: int, p: float) -> float:
    if p <= 0.0 or p >= 1.0:
        return float(k == (0 if p <= 0.0 else n))
    logarithm = (
        math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(p)
        + (n - k) * math.log1p(-p)
    )
    return math.exp(logarithm)


def _check_discordance(only_a: float, only_b: float) -> None:
    if only_a < 0 or only_b < 0 or only_a + only_b > 1:
        raise ValueError(
            "the shares of items that one arm alone solves must be at least 0 and sum to at "
            f"most 1; got {only_a} and {only_b}"
        )
