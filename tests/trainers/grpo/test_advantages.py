"""Advantages, each compared with its formula in numpy."""

from __future__ import annotations

from itertools import pairwise

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.trainers.grpo.advantages import (
    ADVANTAGES,
    centre,
    has_signal,
    leave_one_out,
    standardise,
)

REWARDS = st.lists(st.floats(-10, 10).map(lambda value: round(value, 3)), min_size=2, max_size=16)


@given(REWARDS)
def test_every_advantage_follows_its_formula(rewards: list[float]) -> None:
    if not has_signal(rewards):
        return
    array = numpy.array(rewards)
    assert centre(rewards) == pytest.approx(array - array.mean(), abs=1e-9)
    expected = (array - array.mean()) / array.std(ddof=1)
    assert standardise(rewards) == pytest.approx(expected, abs=1e-9)
    others = [numpy.delete(array, at).mean() for at in range(len(array))]
    assert leave_one_out(rewards) == pytest.approx(array - others, abs=1e-9)


@given(REWARDS)
def test_advantages_of_a_group_sum_to_zero_and_keep_the_order(rewards: list[float]) -> None:
    for function in (standardise, centre, leave_one_out):
        advantages = function(rewards)
        assert sum(advantages) == pytest.approx(0.0, abs=1e-6)
        ranked = sorted(range(len(rewards)), key=lambda at: rewards[at])
        assert all(advantages[a] <= advantages[b] + 1e-9 for a, b in pairwise(ranked))


@pytest.mark.parametrize("rewards", [[0.5, 0.5, 0.5], [1.0], [0.1 + 0.2, 0.3], [0.0, 1e-12]])
def test_a_group_of_equal_rewards_has_no_signal_and_no_advantage(rewards: list[float]) -> None:
    """Even if they only differ by the order of additions."""
    assert not has_signal(rewards)
    for function in ADVANTAGES.values():
        assert function(rewards) == pytest.approx([0.0] * len(rewards), abs=1e-11)


@given(REWARDS, st.floats(0.1, 10), st.floats(-5, 5))
def test_standardised_advantages_do_not_depend_on_the_scale_of_rewards(
    rewards: list[float], factor: float, offset: float
) -> None:
    changed = [factor * reward + offset for reward in rewards]
    if has_signal(rewards) and has_signal(changed):
        assert standardise(changed) == pytest.approx(standardise(rewards), abs=1e-4)
