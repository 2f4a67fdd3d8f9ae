"""Reinforce-Ada: a prompt is sampled until it has shown enough."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.grpo.adaptive_sampling import Exit, advantages, keep, wants_more

REWARDS = st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=24)


@pytest.mark.parametrize(
    ("rewards", "exit_when", "expected"),
    [
        ([0, 0, 0, 0], "positive", True),
        ([0, 0, 0, 1], "positive", False),
        ([0, 0, 0, 1], "balanced", True),
        ([0, 0, 1, 1], "balanced", False),
        ([1, 1, 1, 1], "balanced", True),
        ([1, 1, 1, 1], "positive", False),
    ],
)
def test_a_prompt_is_sampled_until_it_has_shown_enough(
    rewards: list[float], exit_when: Exit, expected: bool
) -> None:
    for rounds in (1, 3):
        more = wants_more(
            rewards, size=4, exit_when=exit_when, rounds=rounds, max_rounds=3, success=1.0
        )
        assert more == (expected and rounds < 3)


@given(REWARDS, st.integers(0, 9))
def test_as_many_of_either_kind_are_kept_as_there_are(rewards: list[float], seed: int) -> None:
    kept = keep(rewards, 4, 1.0, seed)
    assert len(kept) == len(set(kept)) == 4
    good = sum(rewards[at] for at in kept)
    whole = sum(rewards)
    assert good == min(whole, max(2, 4 - (len(rewards) - whole)))
    assert kept == keep(rewards, 4, 1.0, seed)


@given(REWARDS)
def test_baselines_are_of_all_that_was_sampled(rewards: list[float]) -> None:
    kept = keep(rewards, 4, 1.0, 0)
    array = numpy.array(rewards)
    if array.std() == 0:
        assert advantages(rewards, kept) == [0.0] * 4
    else:
        expected = (array - array.mean()) / array.std(ddof=1)
        assert advantages(rewards, kept) == pytest.approx(expected[kept])
