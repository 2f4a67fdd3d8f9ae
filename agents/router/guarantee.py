"""How many wrong answers a calibration may show while a bound on the risk is kept.

The *risk* of a rule is the share of **all** questions for which a wrong small answer is accepted.
Consider a family of rules from the strictest to the most lenient, each of which accepts everything
that the previous one accepts, and more. The most lenient rule is selected whose calibration sample
shows at most `k` such answers. This is fixed-sequence testing of "the risk is above alpha", rule
after rule, until one is not rejected (Learn then Test: Angelopoulos, Bates, Candès, Jordan and Lei
2021, arXiv 2110.01052). Both tests here are exact for finite samples:

* of all questions to come, by the binomial tail (Clopper and Pearson 1934): `k` is the largest
  number with P(Binomial(n, alpha) <= k) <= delta;
* of the next `m` questions, whose own share is what is bounded, by the hypergeometric tail: with
  `j = floor(alpha m) + 1`, the smallest number of errors that breaks the bound, `k` is the largest
  number with P(Hypergeometric(n + m, k + j, n) <= k) <= delta.

Why the second test is valid for the rule that is selected with the calibration itself: go through
the wrong answers of both samples in the order in which more lenient rules accept them. The bound is
broken only if, among the first k + j of them, at most k belong to the calibration. The questions
are exchangeable, so which of them do is a draw without replacement, for any score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache


@lru_cache(maxsize=4096)
def allowed_errors(n: int, alpha: float, delta: float, future: int | None = None) -> int:
    """`k`: how many accepted and wrong answers `n` calibration questions may show; -1 if not even
    zero suffices. `future`: the number of questions of the sample whose own share is bounded; None
    for the share among all future questions."""
    if n < 0 or not 0 < alpha < 1 or not 0 < delta < 1:
        raise ValueError(f"n >= 0 and shares between 0 and 1 are needed: {n}, {alpha}, {delta}")
    low, high = -1, n
    while low < high:
        middle = (low + high + 1) // 2
        if _tail(n, middle, alpha, future) <= delta:
            low = middle
        else:
            high = middle - 1
    return low


def errors_within(n: int, alpha: float) -> int:
    """The maximum number of errors among `n` questions whose share is at most `alpha`."""
    return math.floor(alpha * n + 1e-9)


def most_lenient(scores: Iterable[float], wrong: Iterable[bool], allowed: int) -> float:
    """The least threshold at which at most this many accepted answers are wrong. Between two
    scores, it is the upper one: values in between were not tested. Infinite if nothing may be
    accepted; a non-finite score is never accepted."""
    rows = [(float(score), bool(bad)) for score, bad in zip(scores, wrong, strict=True)]
    finite = sorted(score for score, _ in rows if math.isfinite(score))
    if allowed < 0 or not finite:
        return math.inf
    errors = sorted((score for score, bad in rows if bad and math.isfinite(score)), reverse=True)
    if len(errors) <= allowed:
        return finite[0]
    return min((score for score in finite if score > errors[allowed]), default=math.inf)


@lru_cache(maxsize=256)
def delta_of_a_split(splits: int, delta: float, failure: float = 0.001) -> float:
    """The delta for each of several random splits, so that the bound is kept in a share of at least
    1 - `delta` of *these* splits, except with probability `failure`. With 1 - delta in each split,
    half of all such experiments would miss the bound."""
    permitted = errors_within(splits, delta)
    low, high = 0.0, delta
    for _ in range(60):
        middle = (low + high) / 2
        if 1 - _binomial_tail(splits, permitted, middle) <= failure:
            low = middle
        else:
            high = middle
    return low


def _tail(n: int, k: int, alpha: float, future: int | None) -> float:
    if k < 0:
        return 0.0
    if future is None:
        return _binomial_tail(n, k, alpha)
    breaking = errors_within(future, alpha) + 1
    return 0.0 if breaking > future else _hypergeometric_tail(n, future, k + breaking, k)


def _binomial_tail(n: int, k: int, p: float) -> float:
    """P(Binomial(n, p) <= k)."""
    if k >= n or p <= 0:
        return 1.0
    if p >= 1:
        return 0.0
    terms = (_log_choose(n, i) + i * math.log(p) + (n - i) * math.log1p(-p) for i in range(k + 1))
    return min(1.0, math.fsum(map(math.exp, terms)))


def _hypergeometric_tail(n: int, m: int, drawn: int, k: int) -> float:
    """P(at most `k` of `drawn` from n + m are among the n)."""
    if drawn > n + m:
        return 0.0
    whole = _log_choose(n + m, drawn)
    least = max(0, drawn - m)
    terms = (
        _log_choose(n, i) + _log_choose(m, drawn - i) - whole
        for i in range(least, min(k, n, drawn) + 1)
    )
    return min(1.0, math.fsum(map(math.exp, terms)))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
