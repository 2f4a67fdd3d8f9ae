"""Each game's expert solves its puzzles, also after mistakes that it did not make."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from loopline.agents.environments.environment import AnyEnvironment
from loopline.agents.environments.game import Agent, Episode
from loopline.agents.environments.lessons import AnyLessons, solves
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.registry import find
from loopline.agents.environments.sokoban.puzzle import Pushing
from loopline.agents.environments.sudoku.puzzle import Filling
from loopline.agents.environments.team_episode import PLAN, TOOL, TeamEpisode, played_by
from loopline.agents.environments.word_problem_team.puzzle import Working

GAMES = ("plan_path", "sokoban", "sudoku", "word_problems")
COUNT = 40


def learned(game: str) -> tuple[AnyEnvironment, AnyLessons]:
    environment = find(game)
    assert environment.lessons is not None
    return environment, environment.lessons


def answered_by_expert(lessons: AnyLessons, instance: object, episode: Episode) -> bool:
    assert lessons.expert is not None
    expert = lessons.expert
    return solves(episode, lambda now: expert(instance, now))


@pytest.mark.parametrize("game", GAMES)
def test_an_expert_solves_every_puzzle(game: str) -> None:
    environment, lessons = learned(game)
    for instance in environment.puzzles(Split.TRAIN, 1, COUNT, lessons.puzzle):
        assert answered_by_expert(lessons, instance, environment.open(instance))


@pytest.mark.parametrize(
    ("game", "agent"),
    [("sokoban", PLAN), ("sokoban", TOOL), ("sudoku", PLAN), ("word_problems", PLAN)],
)
def test_an_expert_solves_alone_what_its_turns_allow(game: str, agent: Agent) -> None:
    environment, lessons = learned(game)
    for instance in environment.puzzles(Split.TRAIN, 2, COUNT, lessons.puzzle):
        alone = played_by(agent, instance, turns=12)
        assert answered_by_expert(lessons, alone, environment.open(alone))


@pytest.mark.parametrize("game", GAMES)
def test_an_expert_goes_on_after_a_turn_of_the_weak_team(game: str) -> None:
    environment, lessons = learned(game)
    solved, hopeless, rng = 0, 0, random.Random(3)
    for instance in environment.puzzles(Split.TRAIN, 3, COUNT, lessons.puzzle):
        episode = cast("TeamEpisode[Any, Any]", environment.open(instance))
        for agent in episode.agents:
            episode.apply(agent, lessons.answer(instance, episode, lessons.weak_team, rng))
        # An answered problem is over, and no push frees a box that is stuck in a corner.
        hopeless += episode.done or episode.demonstration() is None
        solved += answered_by_expert(lessons, instance, episode)
    assert COUNT - solved <= hopeless < COUNT / 2


def test_a_sudoku_expert_corrects_a_wrong_digit_first() -> None:
    environment, lessons = learned("sudoku")
    (instance,) = environment.puzzles(Split.TRAIN, 4, 1, lessons.puzzle)
    episode = cast("Filling", environment.open(instance))
    missing = episode.puzzle.oracle(episode.state)
    assert missing
    r, c, right = missing[-1]
    wrong = right % 4 + 1
    episode.apply(TOOL, "#### [conflicts()]")
    episode.apply(PLAN, f"#### [({r + 1}, {c + 1}, {wrong})]")
    episode.apply(TOOL, "#### [conflicts()]")
    assert lessons.expert is not None
    assert lessons.expert(instance, episode).startswith(f"#### [({r + 1}, {c + 1}, {right})")


def test_a_word_problem_expert_keeps_no_calculation_outside_the_solution() -> None:
    environment, lessons = learned("word_problems")
    (instance,) = environment.puzzles(Split.TRAIN, 5, 1, lessons.puzzle)
    episode = cast("Working", environment.open(instance))
    assert lessons.expert is not None
    episode.apply(TOOL, "#### [add(n1, n1)]")
    assert lessons.expert(instance, episode) == "#### [skip()]"


def test_a_sokoban_expert_does_not_carry_out_a_push_in_the_wrong_direction() -> None:
    environment, lessons = learned("sokoban")
    assert lessons.expert is not None
    refused = 0
    for instance in environment.puzzles(Split.TRAIN, 6, COUNT, lessons.puzzle):
        episode = cast("Pushing", environment.open(instance))
        (box,) = episode.state.boxes
        for move in "UDLR":
            trial = episode.copy()
            trial.apply(TOOL, f"#### [push({box[0] + 1}, {box[1] + 1}, {move})]")
            proposal = trial.proposal
            if proposal is None or not proposal.action:
                continue
            answer = lessons.expert(instance, trial)
            refused += not answer.startswith(f"#### {trial.puzzle.show(proposal.action)}"[:-1])
            trial.apply(PLAN, answer)
            assert trial.done or trial.demonstration() is not None
    assert refused
