"""The bound of a router: its exact tests, and that the chosen thresholds keep it."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from loopline.agents.router.guarantee import (
    allowed_errors,
    delta_of_a_split,
    errors_within,
    most_lenient,
)


@pytest.mark.parametrize(("n", "alpha", "delta"), [(50, 0.1, 0.05), (400, 0.05, 0.01)])
def test_the_allowed_errors_of_a_calibration_follow_the_binomial_tail(
    n: int, alpha: float, delta: float
) -> None:
    def tail(k: int) -> float:
        return sum(comb(n, i) * alpha**i * (1 - alpha) ** (n - i) for i in range(k + 1))

    k = allowed_errors(n, alpha, delta)
    assert tail(k) <= delta < tail(k + 1)


@pytest.mark.parametrize(("n", "m"), [(60, 40), (300, 300), (100, 1000)])
def test_the_allowed_errors_of_a_future_sample_are_hypergeometric(n: int, m: int) -> None:
    breaking = errors_within(m, 0.1) + 1

    def tail(k: int) -> float:
        drawn = k + breaking
        ways = sum(comb(n, i) * comb(m, drawn - i) for i in range(k + 1) if drawn - i <= m)
        return ways / comb(n + m, drawn)

    k = allowed_errors(n, 0.1, 0.05, m)
    assert tail(k) <= 0.05 < tail(k + 1)


def test_a_calibration_that_is_too_small_allows_no_error() -> None:
    assert allowed_errors(10, 0.1, 0.05) == -1
    assert most_lenient(np.array([0.4, 0.9]), np.array([False, False]), -1) == np.inf


@given(
    n=st.integers(1, 3000), alpha=st.floats(0.01, 0.5), delta=st.floats(0.001, 0.2),
    m=st.one_of(st.none(), st.integers(1, 3000)),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_bound_allows_fewer_errors_than_its_share_and_a_weaker_bound_allows_more(
    n: int, alpha: float, delta: float, m: int | None
) -> None:
    k = allowed_errors(n, alpha, delta, m)
    if m is None:
        assert k < alpha * n
        # Clopper and Pearson's upper bound on the share.
        assert k < 0 or stats.beta.ppf(1 - delta, k + 1, n - k) <= alpha + 1e-6
    assert k <= allowed_errors(n, min(0.99, alpha * 1.5), delta, m)
    assert k <= allowed_errors(n, alpha, min(0.99, delta * 2), m)


@given(seed=st.integers(0, 2**32 - 1), signal=st.floats(0, 3), wrong=st.floats(0.1, 0.9))
@settings(max_examples=12, deadline=None)
def test_the_bound_fails_with_probability_at_most_delta_for_any_quality_of_the_score(
    seed: int, signal: float, wrong: float
) -> None:
    """Thresholds of 400 calibrations, each compared with the errors of a future sample. One test in
    a million may fail by chance."""
    generator = np.random.Generator(np.random.PCG64(seed))
    n, m, alpha, delta, repeats = 150, 100, 0.1, 0.1, 400
    allowed = allowed_errors(n, alpha, delta, m)
    broken = 0
    for _ in range(repeats):
        errors = generator.random(n + m) < wrong
        scores = generator.normal(size=n + m) - signal * errors
        threshold = most_lenient(scores[:n], errors[:n], allowed)
        accepted = (scores[n:] >= threshold) & errors[n:]
        broken += int(accepted.sum()) > errors_within(m, alpha)
    assert broken <= delta * repeats + 4.8 * (delta * (1 - delta) * repeats) ** 0.5


def test_splits_that_must_all_keep_a_bound_are_calibrated_more_strictly() -> None:
    assert 0.015 < delta_of_a_split(200, 0.05) < 0.025
    assert 0 < delta_of_a_split(1, 0.05) < 0.01


def test_the_threshold_is_one_of_the_tested_scores() -> None:
    scores = np.array([0.9, 0.8, 0.7, 0.6, -np.inf])
    wrong = np.array([False, True, False, True, True])
    assert most_lenient(scores, wrong, 0) == 0.9
    assert most_lenient(scores, wrong, 1) == 0.7
    assert most_lenient(scores, wrong, 2) == 0.6


def test_answers_of_equal_score_are_all_accepted_or_all_refused() -> None:
    scores = np.array([0.9, 0.8, 0.8, 0.8])
    wrong = np.array([False, True, True, False])
    assert most_lenient(scores, wrong, 1) == 0.9
