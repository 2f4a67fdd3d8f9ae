"""Environments whose agents speak in turn, using that of `examples/estimate.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from loopline.agents.environments.conversation import ConversationEpisode
from loopline.agents.environments.environment import AgentSpec, Environment
from loopline.agents.environments.game import OutOfTurn, replay_episode
from loopline.agents.environments.registry import find
from loopline.agents.records import JsonObject, Outcome
from loopline.agents.replay import replay
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import policies_for, prompt_hashes, serving_role
from tests.agents.test_pair import ManyHost, pair_run

GAME = "examples.estimate:ESTIMATE"
AGENTS = ("generator", "verifier", "refiner")


def instance(**setting: Any) -> JsonObject:
    return {"left": 4, "right": 3, "setting": setting}


def episode(**setting: Any) -> ConversationEpisode:
    begun = find(GAME).reset(instance(**setting))
    assert isinstance(begun, ConversationEpisode)
    return begun


def test_agents_act_in_the_environment_s_order_and_see_earlier_messages() -> None:
    begun = episode()
    begun.apply("generator", "It is 10.")
    begun.apply("verifier", "2")
    assert begun.agent == "refiner"
    assert begun.observe("refiner") == "4 * 3\ngenerator: It is 10.\nverifier: 2\nrefiner:"
    begun.apply("refiner", "12")
    assert begun.done
    assert begun.verify().solved
    with pytest.raises(OutOfTurn, match="the episode ended after turn 1"):
        begun.apply("generator", "12")


def test_an_agent_that_acts_out_of_turn_is_refused() -> None:
    with pytest.raises(OutOfTurn, match="it is the turn of generator, not of refiner"):
        episode().apply("refiner", "12")


def test_an_unreadable_text_earns_nothing_and_costs_the_set_penalty() -> None:
    refused = episode(mistake_cost=0.3).apply("generator", "many")
    assert [str(refusal) for refusal in refused.observation.refusals] == ["no_number"]
    assert refused.rewards.total("dense") == pytest.approx(-0.3)
    assert refused.rewards.total("paper") == 0
    right = episode().apply("generator", "12")
    assert right.rewards.total("paper") == 2, "the team's part and its own"


def test_an_episode_ends_when_the_puzzle_is_solved_or_its_turns_run_out() -> None:
    begun = episode(turns=2)
    for text in ("1", "2", "3", "4", "5"):
        begun.apply(begun.agent, text)
        assert not begun.done
    begun.apply(begun.agent, "6")
    assert begun.done
    assert begun.verify().reason == "the last word is 6"
    assert replay_episode(find(GAME), instance(turns=2), begun.actions) == begun


def test_a_team_of_one_plays_alone() -> None:
    begun = episode(team=["refiner"])
    begun.apply("refiner", "12")
    assert begun.verify().solved


def played(hosts: Mapping[str, ManyHost]) -> Any:
    environment = find(GAME)
    task = environment.task(environment.parse(instance()))
    return asyncio.run(run_locally(pair_run(task, candidates=2), hosts))


def test_the_workflow_plays_three_agents_executes_the_best_of_each_and_is_replayed() -> None:
    hosts = {
        "generator": ManyHost([["no idea", "10"]]),
        "verifier": ManyHost([["2", "5"]]),
        "refiner": ManyHost([["3", "12"]]),
    }
    ended = played(hosts)
    assert ended.outcome is Outcome.SOLVED
    assert [(step.agent, step.selected) for step in ended.steps] == [
        ("generator", 1), ("verifier", 0), ("refiner", 1),
    ]  # fmt: skip
    assert ended.agent_rewards.keys() == set(AGENTS)
    system_prompts = [hosts[agent].prompts[0][0].content for agent in AGENTS]
    assert system_prompts == [spec.prompt for spec in find(GAME).agents]
    assert asyncio.run(replay(ended)).divergences == ()


def test_a_run_has_a_policy_and_prompt_per_agent_and_one_role_that_plays_all_turns() -> None:
    policies = policies_for("pair", {"refiner": "pair/other"}, GAME)
    assert [policies[agent] for agent in AGENTS] == [
        "pair/generator", "pair/verifier", "pair/other",
    ]  # fmt: skip
    assert {f"estimate_{agent}.md" for agent in AGENTS} <= prompt_hashes("pair", None, GAME).keys()
    assert {serving_role("pair", agent) for agent in AGENTS} == {"player"}


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("judge", "judge"), "agents need distinct names"),
        ((), "agents need distinct names"),
        (("the judge",), "the name 'the judge' must begin with a small letter"),
    ],
)
def test_agents_without_distinct_names_are_refused(names: tuple[str, ...], says: str) -> None:
    game = find(GAME)
    with pytest.raises(ValueError, match=says):
        Environment(
            name="mine",
            title="Mine",
            agents=tuple(AgentSpec(name, "Say it.") for name in names),
            difficulty=game.difficulty,
            instance=game.instance,
            stream=game.stream,
            open=game.open,
        )
