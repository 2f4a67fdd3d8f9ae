"""Reinforce-Ada: which samples of an adaptively sampled observation the trainer learns from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.records import JsonObject, Trajectory
from loopline.trainers.grpo import adaptive_groups, groups
from loopline.trainers.grpo.adaptive_groups import select_samples
from loopline.trainers.grpo.groups import Group, Sealing, seal

from .recorded import a_call, a_candidate, a_run, a_step

REWARDS = st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=24)
SEALING = Sealing(size=4, belongs=lambda call: True, max_context=64)


def sampled(
    rewards: Sequence[float],
    number: int = 1,
    versions: Sequence[int] = (),
    exit_when: str = "positive",
) -> Trajectory:
    """A run of one adaptively sampled step."""
    pairs = zip(rewards, versions or [0] * len(rewards), strict=True)
    candidates = [
        a_candidate(reward, a_call(version=version)).model_copy(
            update={"reward_parts": {"sparse": reward, "total": reward}}
        )
        for reward, version in pairs
    ]
    step = a_step(candidates)
    options: JsonObject = {"adaptive": {"exit_when": exit_when}}
    run = a_run(number, step)
    return run.model_copy(update={"run": run.run.model_copy(update={"options": options})})


def group_of(rewards: Sequence[float]) -> Group:
    (group,) = seal([sampled(rewards)], SEALING).records
    return group


@given(REWARDS, st.text(max_size=4))
def test_sampling_keeps_successes_and_failures_balanced(rewards: list[float], seed: str) -> None:
    successes = [reward == 1.0 for reward in rewards]
    indices = select_samples(successes, 4, seed)
    assert len(indices) == len(set(indices)) == 4
    good = sum(rewards[at] for at in indices)
    whole = sum(rewards)
    assert good == min(whole, max(2, 4 - (len(rewards) - whole)))
    assert indices == select_samples(successes, 4, seed)


@given(REWARDS)
def test_baselines_are_computed_over_all_sampled_candidates(rewards: list[float]) -> None:
    group = group_of(rewards)
    array = numpy.array(rewards)
    indices = [int(member.origin.rpartition("#")[2]) for member in group.members]
    if array.std() == 0:
        assert group.advantages("standardised") == [0.0] * 4
    else:
        expected = (array - array.mean()) / array.std(ddof=1)
        assert group.advantages("standardised") == pytest.approx(expected[indices])


def test_each_step_forms_its_own_group_however_often_it_was_sampled() -> None:
    runs = [sampled([0.0] * 7 + [1.0], 1), sampled([0.0, 0.0, 0.0, 1.0], 2)]
    first, second = seal(runs, SEALING).records
    assert sorted(first.rewards) == [0.0, 0.0, 0.0, 1.0]
    assert first.sampled_rewards == (0.0,) * 7 + (1.0,)
    assert second.sampled_rewards == (0.0, 0.0, 0.0, 1.0)
    assert {member.origin[:36] for member in first.members} == {runs[0].run.id}


def test_samples_that_another_version_drew_in_a_later_round_are_reported_and_left_out() -> None:
    reading = seal([sampled([0.0] * 4 + [1.0] * 2, versions=[3] * 4 + [4] * 2)], SEALING)
    (group,) = reading.records
    assert (group.policy.version, group.sampled_rewards) == (3, (0.0,) * 4)
    assert [skip.reason for skip in reading.skipped] == [groups.INCOMPLETE]


def test_whole_runs_compete_without_adaptive_sampling() -> None:
    whole = Sealing(size=2, belongs=SEALING.belongs, max_context=64, grouping="trajectory")
    (group,) = seal([sampled([0.0], 1), sampled([1.0], 2)], whole).records
    assert group.sampled is None


def test_a_candidate_whose_rewards_do_not_show_whether_it_succeeded_is_reported() -> None:
    run = a_run(1, a_step([a_candidate(0.0) for _ in range(4)]))
    adaptive = run.run.model_copy(update={"options": {"adaptive": {"exit_when": "positive"}}})
    reading = seal([run.model_copy(update={"run": adaptive})], SEALING)
    assert {skip.reason for skip in reading.skipped} == {adaptive_groups.NO_SUCCESS}


def test_a_run_with_unreadable_sampling_options_is_reported() -> None:
    reading = seal([sampled([0.0] * 4, exit_when="whenever")], SEALING)
    assert [skip.reason for skip in reading.skipped] == [adaptive_groups.BAD_OPTIONS]
