"""Common properties of all environments, found by name or by the object's import path."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.registry import find, split_of_task
from loopline.agents.errors import InvalidTask, PluginError, UnknownName
from loopline.agents.records import Task

GAMES: list[tuple[str, int | None]] = [
    ("plan_path", 5),
    ("sokoban", None),
    ("sudoku", 4),
    ("word_problems", None),
    ("examples.estimate:ESTIMATE", None),
]


@pytest.mark.parametrize(("game", "size"), GAMES)
def test_a_task_reports_the_split_of_its_puzzle(game: str, size: int | None) -> None:
    environment = find(game)
    level = environment.levels(size, {}, {"turns": 2})
    for split in Split:
        for puzzle in environment.puzzles(split, 3, 5, level):
            task = environment.task(puzzle)
            assert task.environment == game
            assert split_of_task(task) is split


def a_story(*wordings: str) -> Task:
    environment = find("word_problems")
    (puzzle,) = environment.puzzles(Split.TEST, 3, 1, environment.levels(None, {}, {}))
    return puzzle.task.model_copy(
        update={"instance": {**puzzle.task.instance, "wordings": wordings}}
    )


@pytest.mark.parametrize("task", [Task(prompt="1 + 1?"), a_story(), a_story("no such wording")])
def test_a_puzzle_without_a_generator_has_no_known_split(task: Task) -> None:
    assert split_of_task(task) is None


def test_asking_for_the_split_of_an_invalid_puzzle_is_an_error() -> None:
    with pytest.raises(InvalidTask, match="no sudoku instance: givens"):
        split_of_task(Task(prompt="?", environment="sudoku", instance={}))


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("no_such_package.game:GAME", "there is no module 'no_such_package'; install its package"),
        ("examples.estimate:ESTIMATES", "is not an environment; examples.estimate has: ESTIMATE"),
        ("antigravity:GAME", "Python's own modules have no environment"),
        ("broken_environment:GAME", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_an_environment_that_cannot_be_found_is_refused_with_the_remedy(
    target: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_environment.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError, match=says):
        find(target)


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownName, match="did you mean 'sokoban'"):
        find("sokobann")


def test_a_team_with_an_unknown_agent_is_refused() -> None:
    environment = find("examples.estimate:ESTIMATE")
    with pytest.raises(InvalidTask, match="estimate has no agent 'critic'; its agents are: gen"):
        environment.reset({"left": 2, "right": 3, "setting": {"team": ["critic"]}})
