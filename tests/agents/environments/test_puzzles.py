"""Puzzles by the name of their game."""

from __future__ import annotations

import pytest

from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.puzzles import Game, difficulty_of, drawn_puzzles, split_of_task
from loopline.agents.errors import InvalidTask
from loopline.agents.records import Task

GAMES: list[tuple[Game, int | None]] = [
    ("plan_path", 5),
    ("sokoban", None),
    ("sudoku", 4),
    ("word_problems", None),
]


@pytest.mark.parametrize(("game", "size"), GAMES)
def test_a_task_says_of_which_split_its_puzzle_is(game: Game, size: int | None) -> None:
    level = difficulty_of(game, size, {}, {"turns": 2})
    for split in Split:
        for one in drawn_puzzles(level, split, 3, 5):
            assert split_of_task(one.task) is split


def a_story(*wordings: str) -> Task:
    level = difficulty_of("word_problems", None, {}, {})
    (one,) = drawn_puzzles(level, Split.TEST, 3, 1)
    return one.task.model_copy(update={"instance": {**one.task.instance, "wordings": wordings}})


@pytest.mark.parametrize("task", [Task(prompt="1 + 1?"), a_story(), a_story("no such wording")])
def test_of_what_no_generator_has_made_no_split_is_known(task: Task) -> None:
    assert split_of_task(task) is None


def test_a_task_that_is_no_puzzle_of_its_game_has_no_split_to_ask_for() -> None:
    with pytest.raises(InvalidTask, match="no sudoku instance: givens"):
        split_of_task(Task(prompt="?", environment="sudoku", instance={}))
