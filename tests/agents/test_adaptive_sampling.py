"""Adaptive sampling of `pair`: an observation is sampled until its candidates meet the exit
condition."""

from __future__ import annotations

import pytest

from loopline.agents.errors import InvalidOptions
from loopline.agents.records import JsonObject, Outcome
from loopline.agents.replay import replay
from loopline.agents.roles.pair.adaptive_sampling import AdaptiveSampling, Exit
from tests.agents.test_pair import TO_THE_GOAL, a_task, answer, pair_run, play


@pytest.mark.parametrize(
    ("successes", "exit_when", "expected"),
    [
        ([0, 0, 0, 0], "positive", True),
        ([0, 0, 0, 1], "positive", False),
        ([0, 0, 0, 1], "balanced", True),
        ([0, 0, 1, 1], "balanced", False),
        ([1, 1, 1, 1], "balanced", True),
        ([1, 1, 1, 1], "positive", False),
    ],
)
def test_an_observation_is_sampled_until_its_exit_condition_holds(
    successes: list[bool], exit_when: Exit, expected: bool
) -> None:
    adaptive = AdaptiveSampling(exit_when=exit_when, rounds=3)
    assert adaptive.wants_more(successes, 4, 1) == expected
    assert not adaptive.wants_more(successes, 4, 3)


async def test_success_means_solving_the_task_and_not_a_high_dense_reward() -> None:
    """A step along a shortest path earns more than 1, and a detour to the goal less than some walks
    that miss it."""
    run = pair_run(a_task(team=["plan_agent"]), candidates=2, adaptive={"exit_when": "positive"})
    trajectory, *_ = await play(
        run, tool=[], plan=[[answer("D"), "?"], [answer("D"), "?"], [TO_THE_GOAL, "?"]]
    )
    (step,) = trajectory.steps
    totals = [candidate.reward_parts["total"] for candidate in step.candidates]
    assert totals[0] > 1
    assert (trajectory.outcome, len(step.candidates)) == (Outcome.SOLVED, 6)


async def test_adaptive_sampling_draws_more_candidates_and_executes_the_best_of_all() -> None:
    run = pair_run(
        a_task(team=["plan_agent"]), candidates=2,
        adaptive={"exit_when": "positive", "rounds": 3, "success": 1.5},
    )  # fmt: skip
    trajectory, _, plan = await play(
        run, tool=[], plan=[["?", answer("U")], [answer("D"), "?"], [TO_THE_GOAL, "?"]]
    )
    (step,) = trajectory.steps
    assert (trajectory.outcome, step.selected) == (Outcome.SOLVED, 4)
    assert len(step.candidates) == 6
    assert len({sampling.seed for sampling in plan.sampling}) == 3
    assert (await replay(trajectory)).reproduced


async def test_adaptive_sampling_stops_after_its_rounds_and_does_not_affect_greedy_play() -> None:
    adaptive: JsonObject = {"exit_when": "positive", "rounds": 2}
    alone = a_task(team=["plan_agent"], turns=1)
    trajectory, *_ = await play(
        pair_run(alone, candidates=1, adaptive=adaptive), tool=[], plan=[["?"], ["?"]]
    )
    assert len(trajectory.steps[0].candidates) == 2
    greedy, *_ = await play(pair_run(alone, greedy=True, adaptive=adaptive), tool=[], plan=[["?"]])
    assert len(greedy.steps[0].candidates) == 1


def test_more_candidates_than_a_step_can_have_are_refused() -> None:
    with pytest.raises(InvalidOptions, match="can add up to 80; a step may have at most 64"):
        pair_run(a_task(), candidates=20, adaptive={"exit_when": "balanced", "rounds": 4})
