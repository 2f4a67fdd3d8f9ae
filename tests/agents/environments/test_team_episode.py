"""Laws of every puzzle for two agents, whatever they write."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.agents.environments.game import Episode, replay_episode
from loopline.agents.environments.plan_path.generation import instances as plan_path_instances
from loopline.agents.environments.registry import find
from loopline.agents.environments.sokoban import SOKOBAN
from loopline.agents.environments.sokoban.generation import Difficulty as SokobanDifficulty
from loopline.agents.environments.sokoban.generation import instances as sokoban_instances
from loopline.agents.environments.sokoban.instance import SokobanInstance, SokobanSetting
from loopline.agents.environments.sudoku.generation import instances as sudoku_instances
from loopline.agents.environments.team_episode import PLAN, TOOL, TeamEpisode
from loopline.agents.environments.word_problem_team.generation import (
    Difficulty as WordProblemTeamDifficulty,
)
from loopline.agents.environments.word_problem_team.generation import (
    instances as word_problem_team_instances,
)
from loopline.agents.environments.word_problem_team.instance import WordProblemSetting
from loopline.agents.environments.word_problem_team.puzzle import WordProblemPuzzle
from loopline.agents.records import Task

NAMES = ("plan_path", "sokoban", "sudoku", "word_problems")


@functools.cache
def tasks(name: str) -> tuple[Task, ...]:
    match name:
        case "plan_path":
            return tuple(instance.task for instance in plan_path_instances("train", 9, 12))
        case "sokoban":
            two = SokobanDifficulty(boxes=2)
            return tuple(instance.task for instance in sokoban_instances("train", 9, 12, two))
        case "sudoku":
            return tuple(instance.task for instance in sudoku_instances("train", 9, 12))
        case _:
            named = WordProblemSetting(named=True)
            difficulty = WordProblemTeamDifficulty(setting=named)
            return tuple(
                instance.task
                for instance in word_problem_team_instances("train", 9, 12, difficulty)
            )


def begun(name: str, index: int) -> TeamEpisode[Any, Any]:
    episode = find(name).reset(tasks(name)[index].instance)
    assert isinstance(episode, TeamEpisode)
    return episode


any_episode = st.builds(begun, st.sampled_from(NAMES), st.integers(0, 11))
small = st.integers(0, 11).map(str)
move = st.sampled_from("UDLRX")
operand = st.sampled_from(("n1", "n2", "n3", "r1", "r2", "100", "7"))
call = st.one_of(
    st.builds("{}({})".format, st.sampled_from(("bfs", "singles")), small),
    st.builds("{}({})".format, st.sampled_from(("step", "look")), move),
    st.builds("{}({}, {})".format, st.sampled_from(("walk", "corner", "candidates")), small, small),
    st.builds("push({}, {}, {})".format, small, small, move),
    st.builds("fill({}, {}, {})".format, small, small, small),
    st.just("conflicts()"),
    st.builds("{}({}, {})".format, st.sampled_from(("add", "sub", "mul", "div")), operand, operand),
)
programs = st.lists(call, min_size=1, max_size=9).map(lambda calls: f"#### [{', '.join(calls)}]")
answers = st.one_of(
    st.lists(move, min_size=1, max_size=9).map(lambda moves: f"#### [{', '.join(moves)}]"),
    st.lists(st.tuples(*[st.integers(0, 10)] * 3), min_size=1, max_size=9).map("#### {}".format),
    programs,
    st.lists(
        st.one_of(
            st.builds("{}(r{})".format, st.sampled_from(("keep", "answer")), st.integers(1, 4)),
            st.builds("answer({})".format, small),
            st.just("skip()"),
        ),
        min_size=1,
        max_size=4,
    ).map(lambda items: f"#### [{', '.join(items)}]"),
)
texts = st.one_of(answers, st.text("#[]() ,UDbfs19\n", max_size=40))


def of_one_kind(episode: TeamEpisode[Any, Any], calls: str) -> str:
    """Return a program with only the calls that the puzzle has."""
    known_calls = [
        call.strip() + ")"
        for call in calls.removeprefix("#### [").removesuffix("]").split(")")
        if call.strip(" ,").partition("(")[0] in episode.puzzle.functions
    ]
    return f"#### [{', '.join(call.strip(' ,') for call in known_calls)}]"


@given(st.sampled_from(NAMES), st.integers(0, 11), st.lists(texts, max_size=8))
@settings(max_examples=150, deadline=None)
def test_any_texts_are_accepted_and_reproduce_the_same_episode(
    name: str, index: int, written: list[str]
) -> None:
    episode = begun(name, index)
    for text in written:
        if episode.done:
            break
        observation = episode.observe(episode.agent)
        applied = episode.apply(episode.agent, text)
        assert observation
        assert set(applied.rewards.scores()) == {*applied.rewards.weights(), "mask"}
        assert bool(applied.observation.action) or applied.observation.refusals
        assert json.loads(json.dumps(applied.observation.action)) == applied.observation.action
    stored = json.loads(json.dumps(tasks(name)[index].instance))
    again = replay_episode(find(name), stored, episode.actions)
    assert again == episode
    assert again.verify() == episode.verify()
    assert episode.verify().solved == episode.puzzle.solved(episode.state)


@given(any_episode, programs)
@settings(max_examples=150, deadline=None)
def test_a_proposal_leads_to_its_scratch_state_only_once_executed(
    episode: TeamEpisode[Any, Any], program: str
) -> None:
    puzzle, before = episode.puzzle, episode.state
    applied = episode.apply(TOOL, of_one_kind(episode, program))
    assert episode.state == before
    proposal = episode.proposal
    assert proposal is not None
    if not proposal.action:
        return
    step = puzzle.perform(before, proposal.action)
    if any(refusal.reason == "no_moves_left" for refusal in step.refusals):
        return  # A tool looks farther than a team may walk.
    assert not step.refusals
    assert f"It proposes {puzzle.show(proposal.action)}" in episode.observe(PLAN)
    rewards = episode.apply(PLAN, f"#### {puzzle.show(proposal.action)}").rewards
    assert episode.state == step.after
    proposed, carried_out = applied.rewards.scores(), rewards.scores()["sparse.solved"]
    if isinstance(puzzle, WordProblemPuzzle):
        # Calls can only keep results there, and a result equal to the answer is paid like an
        # answer.
        carried_out = max(carried_out, float(proposed["dense.right"] == 1.0))
    assert proposed["sparse.solved"] == carried_out


@given(any_episode, st.lists(answers, max_size=3))
@settings(max_examples=100, deadline=None)
def test_from_any_state_the_demonstration_solves_or_the_puzzle_is_unsolvable(
    episode: TeamEpisode[Any, Any], written: list[str]
) -> None:
    for text in written:
        if not episode.done:
            episode.apply(TOOL, "#### []")
            episode.apply(PLAN, text)
    if episode.done:
        return
    demonstration = episode.demonstration()
    episode.apply(TOOL, "#### []")
    if demonstration is None:
        assert not episode.verify().solved
        return
    applied = episode.apply(PLAN, demonstration)
    assert applied.observation.refusals == ()
    assert applied.done
    assert episode.verify().solved


def test_a_puzzle_that_became_unsolvable_has_no_demonstration() -> None:
    instance = SokobanInstance(
        level=("######", "#@   #", "# $  #", "#  . #", "#    #", "######"),
        setting=SokobanSetting(team=(PLAN,)),
    )
    episode = SOKOBAN.reset(instance.task.instance)
    assert episode.demonstration() is not None
    episode.apply(PLAN, "#### [R, D, D, R, D, L]")
    assert episode.demonstration() is None


@given(any_episode, texts)
@settings(max_examples=60, deadline=None)
def test_a_trial_on_a_copy_changes_nothing(episode: TeamEpisode[Any, Any], text: str) -> None:
    episode.apply(TOOL, text)
    before, observation = episode.copy(), episode.observe(PLAN)
    for _ in range(3):
        episode.copy().apply(PLAN, text)
    assert episode == before
    assert episode.observe(PLAN) == observation


@pytest.mark.parametrize("name", NAMES)
def test_every_environment_follows_the_protocol(name: str) -> None:
    game = find(name)
    assert game.key == game.name == name
    episode = game.reset(tasks(name)[0].instance)
    assert isinstance(episode, Episode)
    assert tasks(name)[0].environment == game.name == name


@pytest.mark.parametrize("name", NAMES)
def test_a_brief_observation_omits_the_constant_parts(name: str) -> None:
    instance = tasks(name)[0].instance
    setting = instance["setting"]
    assert isinstance(setting, dict)
    brief = find(name).reset({**instance, "setting": {**setting, "brief": True}})
    whole = find(name).reset(instance)
    for agent in (TOOL, PLAN):
        short = brief.observe(agent).split("\n")
        lines = whole.observe(agent).split("\n")
        assert "#### [" not in brief.observe(agent)
        assert [line for line in lines if line in short] == short
        for episode in (brief, whole):
            episode.apply(agent, "#### [step(U)]")
        assert brief.verify() == whole.verify()


@pytest.mark.parametrize("name", NAMES)
def test_the_local_weights_of_each_agent_add_up_to_one(name: str) -> None:
    episode = begun(name, 0)
    for agent in (TOOL, PLAN):
        weights = episode.apply(agent, "#### [U]").rewards.weights()
        local = [weight for part, weight in weights.items() if part.startswith("local.")]
        assert sum(local) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "right", "wrong", "reason"),
    [
        ("plan_path", "look(U)", "exec(1)", "unknown_tool"),
        ("plan_path", "look(U)", "look(5)", "bad_arguments"),
        ("sokoban", "corner(2, 2)", "singles(1)", "unknown_tool"),
        ("sokoban", "corner(2, 2)", "corner(2)", "bad_arguments"),
        ("sudoku", "conflicts()", "fill(1, 1, U)", "bad_arguments"),
        ("sudoku", "conflicts()", "candidates(1, 1000)", "bad_arguments"),
        ("word_problems", "add(n1, 100)", "keep(n1)", "unknown_tool"),
        ("word_problems", "add(n1, 100)", "add(n1, N2)", "bad_arguments"),
    ],
)
def test_a_program_with_one_wrong_call_does_not_run_at_all(
    name: str, right: str, wrong: str, reason: str
) -> None:
    episode = begun(name, 0)
    rewards, observation, _ = episode.apply(TOOL, f"#### [{right}, {wrong}]")
    assert [refusal.reason for refusal in observation.refusals] == [reason]
    assert observation.action == {}
    assert rewards.scores()["mask"] == 0.0
    assert "It proposes nothing" in episode.observe(PLAN)
