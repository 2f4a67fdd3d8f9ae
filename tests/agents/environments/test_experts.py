"""Each game's expert solves its puzzles, also after mistakes that it did not make."""

from __future__ import annotations

import random
from typing import cast

import pytest

from loopline.agents.environments.environment import AnyEnvironment
from loopline.agents.environments.game import Agent, Episode
from loopline.agents.environments.lessons import AnyLessons
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.registry import find
from loopline.agents.environments.sokoban.puzzle import Pushing
from loopline.agents.environments.sudoku.puzzle import Filling
from loopline.agents.environments.team_episode import PLAN, TOOL, played_by
from loopline.agents.environments.word_problem_team.puzzle import Working

WHOLE_GRID = "loopline.agents.environments.plan_path.whole_grid:WHOLE_GRID"
GAMES = ("plan_path", WHOLE_GRID, "sokoban", "sudoku", "word_problems")
COUNT = 40


def learned(game: str) -> tuple[AnyEnvironment, AnyLessons]:
    environment = find(game)
    assert environment.lessons is not None
    return environment, environment.lessons


def answer(lessons: AnyLessons, instance: object, episode: Episode) -> str | None:
    assert lessons.expert is not None
    return lessons.expert(instance, episode)


def answered_by_expert(lessons: AnyLessons, instance: object, episode: Episode) -> bool:
    while not episode.done:
        text = answer(lessons, instance, episode)
        assert text is not None
        episode.apply(episode.agent, text)
    return episode.verify().solved


@pytest.mark.parametrize("game", GAMES)
def test_an_expert_solves_every_puzzle(game: str) -> None:
    environment, lessons = learned(game)
    for instance in environment.puzzles(Split.TRAIN, 1, COUNT, lessons.puzzle):
        assert answered_by_expert(lessons, instance, environment.open(instance))


@pytest.mark.parametrize(
    ("game", "agent"),
    [
        (WHOLE_GRID, PLAN),
        ("sokoban", PLAN),
        ("sokoban", TOOL),
        ("sudoku", PLAN),
        ("word_problems", PLAN),
    ],
)
def test_an_expert_solves_alone_what_its_turns_allow(game: str, agent: Agent) -> None:
    environment, lessons = learned(game)
    for instance in environment.puzzles(Split.TRAIN, 2, COUNT, lessons.puzzle):
        alone = played_by(agent, instance, turns=12)
        assert answered_by_expert(lessons, alone, environment.open(alone))


@pytest.mark.parametrize("game", GAMES)
def test_after_a_turn_of_the_weak_team_an_expert_solves_the_puzzle_or_sees_no_way(
    game: str,
) -> None:
    environment, lessons = learned(game)
    hopeless, rng = 0, random.Random(3)
    for instance in environment.puzzles(Split.TRAIN, 3, COUNT, lessons.puzzle):
        longer = instance.setting.model_copy(update={"turns": 30})
        instance = instance.model_copy(update={"setting": longer})
        episode = environment.open(instance)
        for agent in episode.agents:
            episode.apply(agent, lessons.answer(instance, episode, lessons.weak_team, rng))
        if episode.done or answer(lessons, instance, episode) is None:
            hopeless += not episode.verify().solved
        else:
            assert answered_by_expert(lessons, instance, episode)
    assert hopeless < COUNT


def test_a_sudoku_expert_sees_no_way_once_a_digit_is_wrong() -> None:
    environment, lessons = learned("sudoku")
    (instance,) = environment.puzzles(Split.TRAIN, 4, 1, lessons.puzzle)
    episode = cast("Filling", environment.open(instance))
    missing = episode.puzzle.oracle(episode.state)
    assert missing
    r, c, right = missing[-1]
    episode.apply(TOOL, "#### [conflicts()]")
    episode.apply(PLAN, f"#### [({r + 1}, {c + 1}, {right % 4 + 1})]")
    assert answer(lessons, instance, episode) is None


def test_a_word_problem_expert_keeps_no_calculation_outside_the_solution() -> None:
    environment, lessons = learned("word_problems")
    (instance,) = environment.puzzles(Split.TRAIN, 5, 1, lessons.puzzle)
    episode = cast("Working", environment.open(instance))
    episode.apply(TOOL, "#### [add(n1, n1)]")
    assert answer(lessons, instance, episode) == "#### [skip()]"


def test_a_sokoban_expert_does_not_carry_out_a_push_in_the_wrong_direction() -> None:
    environment, lessons = learned("sokoban")
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
            text = answer(lessons, instance, trial)
            assert text is not None
            refused += not text.startswith(f"#### {trial.puzzle.show(proposal.action)}"[:-1])
            trial.apply(PLAN, text)
            assert trial.done or trial.demonstration() is not None
    assert refused
