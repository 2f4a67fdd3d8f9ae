"""A test that may be checked after every value keeps its level, and detects real differences."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.agents.sequential_test import FINE_STAKES, MeanTest, mean_interval

DELTA = 0.05


def alarms(draw: list[list[float]], bound: float) -> int:
    """Return the number of sequences in which the test ever rejects "the mean is at most
    `bound`"."""
    rejected = 0
    for values in draw:
        test = MeanTest(bound, low=-1.0, stakes=FINE_STAKES)
        rejected += any(test.add(value) >= 1 / DELTA for value in values)
    return rejected


@settings(max_examples=5, deadline=None)
@given(
    bound=st.sampled_from([-0.1, -0.02, 0.0, 0.3]),
    zero=st.floats(0, 0.9),
    seed=st.integers(0, 2**32),
)
def test_a_true_bound_is_rejected_no_more_often_than_the_level_under_repeated_checks(
    bound: float, zero: float, seed: int
) -> None:
    """Draw values at the bound itself, the hardest case: their mean is `bound`, and some equal
    it."""
    chance = random.Random(seed)
    up = (1 + bound) / 2
    sequences = [
        [
            bound if chance.random() < zero else (1.0 if chance.random() < up else -1.0)
            for _ in range(250)
        ]
        for _ in range(200)
    ]
    # 10 of 200 are allowed on average; chance never adds five standard deviations.
    assert alarms(sequences, bound) <= DELTA * 200 + 5 * (200 * DELTA * (1 - DELTA)) ** 0.5


def test_a_mean_above_the_bound_is_detected() -> None:
    chance = random.Random(3)
    sequences = [[1.0 if chance.random() < 0.6 else -1.0 for _ in range(600)] for _ in range(50)]
    assert alarms(sequences, 0.0) >= 48


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1, 1), max_size=60), st.floats(-0.9, 0.9))
def test_the_capital_stays_positive_and_falls_as_the_bound_rises(
    values: list[float], bound: float
) -> None:
    lower, upper = MeanTest(bound, low=-1.0), MeanTest(min(0.95, bound + 0.05), low=-1.0)
    for value in values:
        assert lower.add(value) >= 0
        upper.add(value)
        assert upper.capital <= lower.capital * (1 + 1e-9)
    assert lower.most >= lower.capital
    assert lower.values == len(values)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1, 1), max_size=80))
def test_the_interval_contains_the_sample_mean(values: list[float]) -> None:
    interval = mean_interval(values, DELTA)
    mean = sum(values) / len(values) if values else 0.0
    assert -1 <= interval.low <= mean + 1e-6
    assert mean - 1e-6 <= interval.high <= 1


def test_the_interval_covers_the_mean_at_its_stated_rate() -> None:
    chance = random.Random(11)
    covered, width = 0, 0.0
    for _ in range(60):
        values = [1.0 if chance.random() < 0.65 else -1.0 for _ in range(100)]
        interval = mean_interval(values, DELTA)
        covered += interval.low <= 0.3 <= interval.high
        width = interval.high - interval.low
    assert covered >= 54
    assert width < 0.9


@pytest.mark.parametrize(("bound", "low"), [(0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0)])
def test_a_bound_below_all_possible_values_is_refused(bound: float, low: float) -> None:
    with pytest.raises(ValueError, match="must be above the minimum"):
        MeanTest(bound, low=low)


@pytest.mark.parametrize("value", [-1.5, float("nan")])
def test_an_impossible_value_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="below the minimum"):
        MeanTest(0.0, low=-1.0).add(value)
