"""Which samples compete: complete groups of the same state under the same policy version."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.environments.game import Part, Rewards
from loopline.agents.records import Candidate, Outcome, SamplingParams, Step, Trajectory
from loopline.trainers.core.models import load_tokenizer
from loopline.trainers.data.store import FORKED
from loopline.trainers.grpo import groups as grouping
from loopline.trainers.grpo import rewards, sequences
from loopline.trainers.grpo.groups import Group, Sealer, Sealing, seal
from loopline.trainers.grpo.rewards import RewardChoice
from loopline.workers.engines.local.model_files import MICRO_MODELS
from loopline.workers.engines.text.tokenizer_codec import TokenizerCodec
from loopline.workers.store.records import OTHER_VERSION

from .recorded import a_call, a_candidate, a_run, a_step

SEALING = Sealing(size=2, belongs=lambda call: True, max_context=64)


def shown(*runs: Trajectory, **changes: Any) -> tuple[list[Group], dict[str, int]]:
    reading = seal(runs, replace(SEALING, **changes))
    return list(reading.records), Counter(skip.reason for skip in reading.skipped)


def test_k_candidates_of_one_step_are_a_group() -> None:
    (group,), reasons = shown(a_run(1, a_step([a_candidate(1.0), a_candidate(0.0)])))
    assert group.rewards == (1.0, 0.0)
    assert (group.key.agent, group.key.turn) == ("solo", 0)
    assert reasons == {}


def test_runs_that_meet_the_same_state_share_a_group_regardless_of_their_ids() -> None:
    runs = [a_run(number, a_step([a_candidate(float(number))])) for number in (1, 2)]
    (group,), _ = shown(*runs)
    assert group.rewards == (1.0, 2.0)


def test_another_instance_agent_turn_or_observation_makes_another_group() -> None:
    candidate = a_candidate(1.0)
    runs = [
        a_run(1, a_step([candidate])),
        a_run(2, a_step([candidate]), instance=1),
        a_run(3, a_step([candidate], agent="other")),
        a_run(4, a_step([candidate], turn=1)),
        a_run(5, a_step([a_candidate(1.0, a_call(prompt=(1, 2, 4)))])),
    ]
    assert shown(*runs) == ([], {grouping.INCOMPLETE: 5})


def test_members_beyond_k_start_a_new_group_which_is_never_sealed_half_full() -> None:
    step = a_step([a_candidate(float(reward)) for reward in range(5)])
    groups, reasons = shown(a_run(1, step))
    assert [group.rewards for group in groups] == [(0.0, 1.0), (2.0, 3.0)]
    assert reasons == {grouping.INCOMPLETE: 1}


def test_neither_a_group_nor_a_member_mixes_versions() -> None:
    two_versions = [a_candidate(1.0, a_call(version=version)) for version in (3, 4)]
    assert shown(a_run(1, a_step(two_versions))) == ([], {grouping.MIXED: 1})
    torn = a_candidate(1.0, a_call(version=3), a_call(prompt=(1, 2, 3, 4, 5), version=4))
    _, reasons = shown(a_run(1, a_step([torn, torn])))
    assert reasons == {grouping.MIXED: 2}


def test_groups_are_ordered_by_version_in_whatever_order_their_runs_are_read() -> None:
    runs = [
        a_run(9 - version, a_step([a_candidate(r, a_call(version=version)) for r in (0.0, 1.0)]))
        for version in (2, 0, 1)
    ]
    groups, _ = shown(*runs)
    assert [group.policy.version for group in groups] == [0, 1, 2]
    assert shown(*reversed(runs))[0] == groups


def test_a_duplicate_run_counts_once() -> None:
    run = a_run(1, a_step([a_candidate(1.0), a_candidate(0.0)]))
    groups, reasons = shown(run, run)
    assert len(groups) == 1
    assert reasons == {grouping.TWICE: 1}


def test_the_run_that_completes_a_group_seals_it() -> None:
    sealer = Sealer(SEALING)
    first, second, third = (a_run(number, a_step([a_candidate(1.0)])) for number in (1, 2, 3))
    assert sealer.add(first) == []
    (group,) = sealer.add(second)
    assert [member.origin[:36] for member in group.members] == [first.run.id, second.run.id]
    assert sealer.add(second) == []
    assert sealer.incomplete_groups() == []
    assert sealer.add(third) == []
    assert [skip.reason for skip in sealer.incomplete_groups()] == [grouping.INCOMPLETE]
    assert [skip.reason for skip in sealer.skipped] == [grouping.TWICE]


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (a_candidate(1.0, a_call(trainable=False)), sequences.NOT_TRAINABLE),
        (a_candidate(1.0, a_call(logprobs=[-1.0])), sequences.NOT_FITTING),
        (a_candidate(1.0, a_call(logprobs=[-1.0, float("nan")])), sequences.NOT_FITTING),
        (a_candidate(1.0, a_call(logprobs=[-1.0, 0.5])), sequences.NOT_FITTING),
        (a_candidate(1.0, a_call(finish_reason="cancelled")), sequences.NOT_ENDED),
        (a_candidate(1.0, a_call(sampling=SamplingParams())), sequences.GREEDY),
        (
            a_candidate(1.0, a_call(sampling=SamplingParams(temperature=1.0, top_p=0.9))),
            sequences.FILTERED,
        ),
        (
            a_candidate(
                1.0, a_call(sampling=SamplingParams(temperature=1.0, frequency_penalty=0.5))
            ),
            sequences.FILTERED,
        ),
        (
            a_candidate(
                1.0, a_call(sampling=SamplingParams(temperature=1.0, presence_penalty=-0.5))
            ),
            sequences.FILTERED,
        ),
        (a_candidate(1.0, a_call(grammar_masked=True)), sequences.FILTERED),
        (a_candidate(1.0, a_call(prompt=range(70))), sequences.TOO_LONG),
        (Candidate(reward_parts={"team": 1.0}), sequences.NO_CALL),
        (Candidate(calls=(a_call(),)), rewards.NO_REWARD),
        (a_candidate(float("nan")), rewards.NOT_A_NUMBER),
    ],
)
def test_an_unusable_sample_is_reported_and_its_group_stays_open(
    candidate: Candidate, reason: str
) -> None:
    groups, reasons = shown(a_run(1, a_step([a_candidate(1.0), candidate])))
    assert groups == []
    assert reasons == {reason: 1, grouping.INCOMPLETE: 1}


def test_records_of_another_schema_version_are_reported() -> None:
    newer = a_run(1, a_step([a_candidate(1.0)] * 2)).model_copy(update={"version": 2})
    reading = seal([newer], SEALING)
    assert reading.records == ()
    assert reading.skipped[0].reason == OTHER_VERSION
    assert reading.skipped[0].detail == "version 2; this program reads 1"


def test_ids_of_another_tokenizer_are_recognised_because_they_do_not_decode_to_the_text() -> None:
    codec = TokenizerCodec(load_tokenizer(MICRO_MODELS / "slm"))
    end = 2
    belongs = sequences.same_tokenizer(codec, 2048, frozenset({end}))
    written = codec.encode("The answer is 7.")
    assert belongs(a_call(output=[*written, end], text="The answer is 7."))
    assert not belongs(
        a_call(output=[token_id + 1 for token_id in written], text="The answer is 7.")
    )
    assert not belongs(a_call(output=[5000], text="The answer is 7."))
    stopped = SamplingParams(temperature=1.0, stop=(" is",))
    assert belongs(a_call(output=written, text="The answer", sampling=stopped))
    assert not belongs(a_call(output=written, text="The answer"))


def test_a_conversation_is_one_sequence_whose_observations_are_not_learned() -> None:
    first = a_call((1, 2), (3, 4), [-0.1, -0.2])
    second = a_call((1, 2, 3, 4, 9, 9), (5,), [-0.3], finish_reason="length")
    (sequence,) = sequences.sequences_of((first, second), lambda call: True, 64)
    assert sequence.ids == (1, 2, 3, 4, 9, 9, 5)
    assert sequence.learned == (False, False, True, True, False, False, True)
    assert sequence.logprobs == (0.0, 0.0, -0.1, -0.2, 0.0, 0.0, -0.3)
    assert sequence.truncated


def test_a_truncated_completion_marks_the_sequence_that_continues_it() -> None:
    cut = a_call((1, 2), (3, 4), finish_reason="length")
    (sequence,) = sequences.sequences_of(
        (cut, a_call((1, 2, 3, 4, 9), (5,))), lambda call: True, 64
    )
    assert sequence.truncated


def test_a_prompt_that_does_not_extend_the_previous_ids_starts_a_new_sequence() -> None:
    """A template that drops earlier reasoning, or another temperature."""
    other_call = a_call((1, 2, 4, 9), (5,))
    hotter = a_call((1, 2, 3, 4), (5,), sampling=SamplingParams(temperature=0.7))
    for second in (other_call, hotter):
        pieces = sequences.sequences_of((a_call((1, 2), (3, 4)), second), lambda call: True, 64)
        assert [sequence.ids for sequence in pieces] == [(1, 2, 3, 4), (*second.prompt_ids, 5)]


def test_mas_grpo_compares_whole_runs_of_one_instance_for_each_agent() -> None:
    """Every executed completion of a run has the run's reward, whatever states it met."""

    def run(number: int, reward: float) -> Trajectory:
        return a_run(
            number,
            a_step([a_candidate(0.0, a_call(prompt=(number, 2)))], agent="coder"),
            a_step([a_candidate(0.0, a_call(prompt=(7, number)))], agent="tester", turn=1),
            reward=reward,
        )

    groups, reasons = shown(run(1, 0.25), run(2, 0.75), grouping="trajectory")
    assert [(group.key.agent, group.rewards) for group in groups] == [
        ("coder", (0.25, 0.75)),
        ("tester", (0.25, 0.75)),
    ]
    assert groups[0].members[0].sequences[0].ids[0] == 1
    assert reasons == {}
    assert shown(run(1, 0.0), run(2, 0.0), grouping="single")[1] == {grouping.SEVERAL_AGENTS: 2}


def test_whole_runs_are_skipped_if_a_step_was_chosen_by_its_reward() -> None:
    """The best of several samples is not a sample of the policy: its importance ratios are
    wrong."""
    candidates = [a_candidate(9.0), a_candidate(0.0)]
    runs = [a_run(number, a_step(candidates), reward=float(number)) for number in (1, 2)]
    assert shown(*runs, grouping="trajectory") == ([], {grouping.CHOSEN: 2})
    assert shown(*runs, grouping="single") == ([], {grouping.CHOSEN: 2})


def test_single_agent_grpo_compares_runs_by_their_last_team_reward_if_no_reward_is_set() -> None:
    runs = [
        a_run(number, a_step([a_candidate(0.0)]), a_step([a_candidate(float(number))], turn=1))
        for number in (1, 2)
    ]
    (group,), _ = shown(*runs, grouping="single")
    assert group.rewards == (1.0, 2.0)
    assert len(group.members[0].sequences) == 2


def test_only_the_wanted_agents_are_grouped() -> None:
    pair = [a_candidate(1.0), a_candidate(0.0)]
    run = a_run(1, a_step(pair, agent="coder"), a_step(pair, agent="tester"))
    groups, _ = shown(run, agents=frozenset({"tester"}))
    assert [group.key.agent for group in groups] == ["tester"]


def test_sums_that_an_environment_added_up_itself_do_not_count_twice() -> None:
    parts = {"team.progress": 0.5, "local.format": 1.0, "mask": 1.0, "total": 0.6}
    assert rewards.candidate_reward(parts, RewardChoice()) == 0.6


def test_rewards_are_alpha_times_the_team_s_part_plus_the_other_parts() -> None:
    parts = {"team": 1.0, "format": 1.0, "legal": 0.5}
    assert rewards.candidate_reward(parts, RewardChoice()) == 2.5
    assert rewards.candidate_reward(parts, RewardChoice(alpha=0.5)) == 2.0
    run = a_run(1, a_step([a_candidate(0.5)]), agent_rewards={"solo": 0.25}, reward=1.0)
    assert rewards.run_reward(run, "solo", RewardChoice()) == 1.25


def test_the_recorded_sums_give_the_total_of_any_other_scheme() -> None:
    step_rewards = Rewards(
        (
            Part("team", "progress", 0.5, 1.0), Part("local", "legal", 1.0, 0.25),
            Part("dense", "valid", -1.0, 0.01), Part("sparse", "solved", 1.0, 1.0),
        )
    )  # fmt: skip
    parts = {**step_rewards.scores(), **step_rewards.sums(), "total": step_rewards.total("dense")}
    assert rewards.candidate_reward(parts, RewardChoice()) == step_rewards.total("dense") == -0.01
    for scheme in ("paper", "dense", "sparse", "progress"):
        for alpha in (0.0, 1.0, 2.0):
            choice = RewardChoice(scheme=scheme, alpha=alpha)
            assert rewards.candidate_reward(parts, choice) == step_rewards.total(scheme, alpha)
    assert rewards.candidate_reward(parts, RewardChoice(alpha=2.0)) == step_rewards.total(
        "paper", 2.0
    )
    steps = [a_step([Candidate(calls=(a_call(),), reward_parts=parts)])] * 2
    run = a_run(1, *steps, reward=1.0, agent_rewards={"solo": 0.75})
    assert rewards.run_reward(run, "solo", RewardChoice()) == 1.75
    assert (
        rewards.run_reward(run, "solo", RewardChoice(scheme="paper")) == 1.0 + step_rewards.total()
    )


def test_a_record_without_a_scheme_s_rewards_is_reported() -> None:
    step = a_step([Candidate(calls=(a_call(),), reward_parts={"total": 1.0})])
    _, reasons = shown(a_run(1, step), reward=RewardChoice(scheme="dense"))
    assert reasons == {rewards.NO_SCHEME: 1}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("outcome", Outcome)
def test_an_aborted_run_is_not_learned_from_as_a_failure(outcome: Outcome, whole: bool) -> None:
    """An end by a worker's crash, a limit or a user reveals nothing about the agents' actions."""
    broken = {Outcome.CANCELLED, Outcome.DEADLINE, Outcome.BUDGET, Outcome.ERROR}
    step = a_step([a_candidate(1.0)] if whole else [a_candidate(1.0), a_candidate(0.0)])
    runs = [
        a_run(number, step, reward=0.0).model_copy(update={"outcome": outcome, "reason": "why"})
        for number in (1, 2)
    ]
    groups, reasons = shown(*runs, grouping="trajectory" if whole else "at-grpo")
    if outcome in broken:
        assert (groups, reasons) == ([], {f"run that ended by {outcome}": 2})
    else:
        assert len(groups) == (1 if whole else 2)
        assert reasons == {}


def a_team(number: int, tester: int, coder: int = 3, prompt: str = "") -> Trajectory:
    """Run `number` of a coder and a tester of these versions."""
    run = a_run(
        number,
        a_step([a_candidate(0.0, a_call(version=coder))], agent="coder"),
        a_step([a_candidate(0.0, a_call(version=tester))], agent="tester", turn=1),
        reward=float(number),
    )
    return run.model_copy(
        update={"run": run.run.model_copy(update={"prompts": {"pair/coder": prompt}})}
    )


def test_whole_runs_with_different_versions_of_a_teammate_do_not_compete() -> None:
    """A better tester's effect is not the coder's achievement."""
    runs = [a_team(1, 3), a_team(2, 4), a_team(3, 3), a_team(4, 4)]
    groups, reasons = shown(*runs, grouping="trajectory", agents=frozenset({"coder"}))
    assert [group.rewards for group in groups] == [(1.0, 3.0), (2.0, 4.0)]
    assert reasons == {}


def test_whole_runs_with_several_versions_of_a_teammate_are_reported() -> None:
    """For example if a publication falls into a wave."""
    reading = seal([a_team(1, 3), a_team(2, 4)], replace(SEALING, grouping="trajectory"))
    assert reading.records == ()
    coder, tester = reading.skipped
    assert (coder.reason, tester.reason) == (grouping.MIXED_TEAMS, grouping.MIXED)
    assert coder.detail.startswith("2 of 2 members: 1 of version 3 alongside prompts ")
    assert "tester by llm 3 of micro, 1 of version 3 alongside" in coder.detail
    assert coder.detail.endswith("tester by llm 4 of micro")


def test_whole_runs_compete_even_if_one_ended_before_a_teammate_had_a_turn() -> None:
    """For example one planner that gives up at once, and one that does not."""
    both, alone = (
        a_team(1, 3),
        a_run(2, a_step([a_candidate(0.0, a_call(version=3))], agent="coder")),
    )
    alone = alone.model_copy(
        update={"run": alone.run.model_copy(update={"prompts": both.run.prompts})}
    )
    coders = {"grouping": "trajectory", "agents": frozenset({"coder"})}
    (group,), reasons = shown(both, alone.model_copy(update={"team_reward": 0.0}), **coders)
    assert group.rewards == (1.0, 0.0)
    assert reasons == {}


def test_whole_runs_with_other_prompts_do_not_compete() -> None:
    runs = [a_team(1, 3, prompt="one"), a_team(2, 3, prompt="other")]
    groups, reasons = shown(*runs, grouping="trajectory")
    assert (groups, reasons) == ([], {grouping.MIXED_TEAMS: 2})


def forked(number: int, parent: Trajectory, *more: Step) -> Trajectory:
    """Run `number`, which starts with the steps of its parent: their completions are the same."""
    branch = a_run(number, *more)
    steps = [step.model_copy(update={"run_id": branch.run.id}) for step in parent.steps]
    run = branch.run.model_copy(update={"parent": parent.run.id})
    return branch.model_copy(update={"run": run, "steps": (*steps, *branch.steps)})


def test_the_steps_that_a_fork_inherits_from_its_parent_are_learned_once() -> None:
    pair = [a_candidate(0.0), a_candidate(1.0)]
    parent = a_run(1, a_step(pair))
    fork = forked(2, parent, a_step(pair, turn=1))
    groups, reasons = shown(parent, fork)
    assert [(group.key.turn, group.members[0].origin[:36]) for group in groups] == [
        (0, parent.run.id),
        (1, fork.run.id),
    ]
    assert reasons == {grouping.SEEN: 2}
    assert len(shown(fork)[0]) == 2
    lonely = a_run(1, a_step([a_candidate(0.0)]))
    groups, reasons = shown(lonely, forked(2, lonely))
    assert groups == []
    assert reasons == {grouping.SEEN: 1, grouping.INCOMPLETE: 1}


def test_a_fork_does_not_compete_with_its_parent_as_a_whole_run() -> None:
    parent = a_run(1, a_step([a_candidate(0.0)]), reward=0.0)
    fork = forked(2, parent, a_step([a_candidate(1.0)], turn=1))
    groups, reasons = shown(parent, fork, grouping="trajectory")
    assert groups == []
    assert reasons == {FORKED: 1, grouping.INCOMPLETE: 1}


@given(
    counts=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30),
    size=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_sealed_groups_contain_each_sample_at_most_once_and_never_mix_states_or_versions(
    counts: list[tuple[int, int]], size: int, seed: int
) -> None:
    runs = [
        a_run(number, a_step([a_candidate(0.0, a_call(prompt=(state, 1), version=version))]))
        for number, (state, version) in enumerate(counts)
    ]
    in_order, _ = shown(*runs, size=size)
    random.Random(seed).shuffle(runs)
    groups, _ = shown(*runs, size=size)
    assert groups == in_order
    origins = [member.origin for group in groups for member in group.members]
    assert len(origins) == len(set(origins))
    for group in groups:
        assert len(group.members) == size
        assert len({member.sequences[0].ids[0] for member in group.members}) == 1
    sealed = {pair: counts.count(pair) // size for pair in set(counts)}
    assert len(groups) == sum(sealed.values())
