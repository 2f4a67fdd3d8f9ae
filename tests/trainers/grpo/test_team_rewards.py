"""What a whole run of any workflow is worth to its agents, and how that is divided among turns."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loopline.agents.environments import api_worlds
from loopline.agents.records import Candidate, Outcome, Task, Trajectory
from loopline.trainers.grpo import rewards
from loopline.trainers.grpo.advantages import (
    centre,
    discounted_returns,
    standardise,
    turn_advantages,
)
from loopline.trainers.grpo.credit import Credit
from loopline.trainers.grpo.groups import Group, Sealing, seal
from loopline.trainers.grpo.rewards import (
    RewardChoice,
    dollars_of,
    overlong_penalty,
    run_reward,
)
from loopline.trainers.grpo.rows import rows_of
from loopline.workers.store.rewards import TURN, Feedback

from .recorded import a_call, a_run, a_step
from .tiny_grpo import settings_of

AGENTS = ("planner", "caller", "summarizer")
SEALING = Sealing(
    size=2, belongs=lambda call: True, max_context=64, grouping="trajectory",
    reward=RewardChoice(),
)  # fmt: skip


def a_team_run(number: int, outcome: Outcome, *, cost: int = 0) -> Trajectory:
    """A run of a planner, a caller, the planner again and a summarizer, without any rewards."""
    order = (*AGENTS[:2], AGENTS[0], AGENTS[2])
    steps = [
        a_step([Candidate(calls=(a_call(cost_micro_dollars=cost),))], agent=agent, turn=turn)
        for turn, agent in enumerate(order)
    ]
    run = a_run(number, *steps, workflow="umi")
    return run.model_copy(update={"outcome": outcome})


def shown(*runs: Trajectory, **changes: Any) -> tuple[dict[str, Group], dict[str, int]]:
    reading = seal(runs, replace(SEALING, **changes))
    by_agent = {group.key.agent: group for group in reading.records}
    return by_agent, Counter(skip.reason for skip in reading.skipped)


def by_length(trajectory: Trajectory) -> float:
    """A user's reward."""
    return float(len(trajectory.steps))


def by_turn(trajectory: Trajectory) -> Feedback:
    """A user's reward for an agent and one of its turns."""
    good = trajectory.outcome is Outcome.SOLVED
    turns: dict[tuple[str | None, int], float] = {("planner", 0): float(good), ("planner", 2): 3.0}
    return Feedback(team=1.0, agents={"caller": 0.5}, turns=turns)


def broken(trajectory: Trajectory) -> float:
    raise RuntimeError("no such table")


def test_runs_of_three_agents_are_rewarded_by_their_outcome() -> None:
    groups, reasons = shown(a_team_run(1, Outcome.SOLVED), a_team_run(2, Outcome.FAILED))
    assert set(groups) == set(AGENTS)
    assert all(group.rewards == (1.0, 0.0) for group in groups.values())
    assert [len(member.sequences) for member in groups["planner"].members] == [2, 2]
    assert reasons == {}


def test_a_run_without_a_judgement_is_counted_and_reported() -> None:
    groups, reasons = shown(a_team_run(1, Outcome.ANSWERED), a_team_run(2, Outcome.GAVE_UP))
    assert groups == {}
    assert reasons == {rewards.NO_RUN_REWARD: 6}


def test_a_run_in_a_world_is_judged_by_its_actions_there() -> None:
    instance = next(
        item for item in api_worlds.instances("train", 3, 20) if item.oracle.answer is not None
    )
    run = a_team_run(1, Outcome.ANSWERED)
    task = instance.task
    done = run.model_copy(
        update={"run": run.run.model_copy(update={"task": task}), "answer": "Done."}
    )
    assert rewards.outcome_reward(done) == 0.0
    assert rewards.outcome_reward(run) is None
    unsolvable = next(
        item for item in api_worlds.instances("train", 3, 200)
        if item.oracle.answer is None and not item.oracle.steps
    )  # fmt: skip
    gave_up = done.model_copy(
        update={
            "run": run.run.model_copy(update={"task": unsolvable.task}),
            "outcome": Outcome.GAVE_UP, "answer": None,
        }
    )  # fmt: skip
    assert rewards.outcome_reward(gave_up) == 1.0


def test_dollars_are_subtracted_on_request() -> None:
    run = a_team_run(1, Outcome.SOLVED, cost=250)
    assert dollars_of(run) == pytest.approx(0.001)
    choice = RewardChoice(dollar_weight=100.0)
    worth = run_reward(rewards.rewarded(run, choice), "caller", choice)
    assert worth == pytest.approx(1.0 - 100.0 * 0.001)
    dear, cheap = a_team_run(1, Outcome.SOLVED, cost=250), a_team_run(2, Outcome.SOLVED, cost=10)
    groups, _ = shown(dear, cheap, reward=choice)
    assert groups["summarizer"].rewards[0] < groups["summarizer"].rewards[1]


@given(st.integers(0, 60), st.integers(1, 40))
def test_the_overlong_penalty_follows_the_published_formula(length: int, buffer: int) -> None:
    limit = 50
    if length <= limit - buffer:
        expected = 0.0
    elif length <= limit:
        expected = ((limit - buffer) - length) / buffer
    else:
        expected = -1.0
    assert overlong_penalty(length, limit, buffer) == pytest.approx(expected)
    assert overlong_penalty(length, limit, 0) == 0.0


def test_a_run_is_penalised_for_its_agents_longest_completion() -> None:
    short, long = a_team_run(1, Outcome.SOLVED), a_team_run(2, Outcome.SOLVED)
    calls = (a_call(output=tuple(range(12))),)
    steps = [
        step.model_copy(update={"candidates": (Candidate(calls=calls),)})
        if step.agent == "caller"
        else step
        for step in long.steps
    ]
    # The limit of these completions is 16 tokens.
    choice = RewardChoice(overlong_buffer=8)
    groups, _ = shown(short, long.model_copy(update={"steps": tuple(steps)}), reward=choice)
    assert groups["caller"].rewards == (1.0, 0.5)
    assert groups["planner"].rewards == (1.0, 1.0)


def test_a_user_s_function_rewards_runs_agents_and_turns() -> None:
    runs = a_team_run(1, Outcome.SOLVED), a_team_run(2, Outcome.FAILED)
    groups, _ = shown(*runs, reward=RewardChoice(function=f"{__name__}:by_length"))
    assert groups["caller"].rewards == (4.0, 4.0)
    groups, _ = shown(*runs, reward=RewardChoice(function=f"{__name__}:by_turn"))
    assert groups["caller"].rewards == (1.5, 1.5)
    assert [member.turn_rewards for member in groups["planner"].members] == [(1.0, 3.0), (0.0, 3.0)]
    assert groups["summarizer"].members[0].turn_rewards == (None,)


def test_a_reward_function_that_fails_leaves_the_run_out() -> None:
    choice = RewardChoice(function=f"{__name__}:broken")
    reading = seal([a_team_run(1, Outcome.SOLVED)], replace(SEALING, reward=choice))
    (skip,) = reading.skipped
    assert skip.reason == rewards.FAILED_FUNCTION
    assert "RuntimeError: no such table" in skip.detail
    with pytest.raises(ValidationError, match="is not a reward function"):
        RewardChoice(function=f"{__name__}:nothing")


# ---- credit ----

TURNS = st.lists(
    st.lists(st.one_of(st.none(), st.integers(-4, 4).map(float)), min_size=1, max_size=4),
    min_size=2, max_size=5,
)  # fmt: skip


@given(TURNS, st.floats(0, 1).map(lambda item: round(item, 2)))
def test_a_turns_advantage_compares_discounted_returns_of_the_same_turn(
    members: list[list[float | None]], discount: float
) -> None:
    def value(turns: list[float | None], at: int) -> float | None:
        later = turns[at:]
        if all(reward is None for reward in later):
            return None
        return sum(discount**place * (reward or 0.0) for place, reward in enumerate(later))

    for turns in members:
        expected = [value(turns, at) for at in range(len(turns))]
        for actual, wanted in zip(discounted_returns(turns, discount), expected, strict=True):
            assert (actual is None) == (wanted is None)
            assert wanted is None or actual == pytest.approx(wanted)
    advantages = turn_advantages(members, centre, discount)
    for at in range(4):
        rivals = {
            number: paid
            for number, turns in enumerate(members)
            if at < len(turns) and (paid := value(turns, at)) is not None
        }
        for number, turns in enumerate(members):
            if at < len(turns):
                alone = len(rivals) < 2 or number not in rivals
                mean = numpy.mean(list(rivals.values())) if rivals else 0.0
                wanted = 0.0 if alone else rivals[number] - mean
                assert advantages[number][at] == pytest.approx(wanted, abs=1e-8)


def paid_runs() -> tuple[Trajectory, Trajectory]:
    """Two runs that solve; the planner's second turn was good in the first run, its first turn in
    the other."""

    def paid(run: Trajectory, values: tuple[float, float]) -> Trajectory:
        left = iter(values)
        steps = [
            step
            if step.agent != "planner"
            else step.model_copy(
                update={
                    "candidates": (
                        step.candidates[0].model_copy(update={"reward_parts": {TURN: next(left)}}),
                    )
                }
            )
            for step in run.steps
        ]
        return run.model_copy(update={"steps": tuple(steps), "team_reward": 1.0})

    first, second = a_team_run(1, Outcome.SOLVED), a_team_run(2, Outcome.SOLVED)
    return paid(first, (0.0, 1.0)), paid(second, (1.0, 0.0))


def test_turn_credit_distinguishes_turns_that_the_outcome_rewards_alike() -> None:
    groups, _ = shown(*paid_runs())
    planner = groups["planner"]
    outcome_only, turns = Credit(), Credit(turn_weight=0.5, discount=0.0)
    assert not planner.has_signal(outcome_only)
    assert planner.has_signal(turns)
    high = 0.5 * standardise([1.0, 0.0])[0]
    first, second = planner.sequence_advantages("standardised", turns)
    assert first == pytest.approx([-high, high])
    assert second == pytest.approx([high, -high])
    rows = rows_of([planner], settings_of(grouping="trajectory", credit=turns))
    assert Counter(round(row.advantage, 6) for row in rows) == {
        round(high, 6): 2, round(-high, 6): 2,
    }  # fmt: skip


def test_outcome_credit_can_be_left_out() -> None:
    groups, _ = shown(a_team_run(1, Outcome.SOLVED), a_team_run(2, Outcome.FAILED))
    caller = groups["caller"]
    assert caller.has_signal(Credit())
    assert not caller.has_signal(Credit(outcome_weight=0.0))
    (solved,), (failed,) = caller.sequence_advantages("standardised", Credit(outcome_weight=2.0))
    assert (solved, failed) == pytest.approx((math.sqrt(2), -math.sqrt(2)))


def test_expert_iteration_learns_only_from_the_best_runs() -> None:
    runs = [a_team_run(1, Outcome.SOLVED), a_team_run(2, Outcome.FAILED)]
    groups, _ = shown(*runs)
    settings = settings_of(grouping="trajectory", objective={"loss": "rft"})
    rows = rows_of(list(groups.values()), settings)
    assert {row.advantage for row in rows} == {1.0}
    assert {row.origin.partition("/")[0] for row in rows} == {runs[0].run.id}


def test_a_task_without_a_judged_outcome_has_no_reward() -> None:
    run = a_team_run(1, Outcome.ANSWERED)
    question = run.run.model_copy(update={"task": Task(prompt="What is 1 + 1?")})
    assert rewards.outcome_reward(run.model_copy(update={"run": question})) is None
