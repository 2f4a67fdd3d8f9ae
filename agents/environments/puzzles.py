"""Puzzles by the name of their game, as a command asks for them: how hard they are, how they are
played, which ones are drawn, and which ones are no training's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, TypeVar

from pydantic import ValidationError

from loopline.agents.environments import plan_path, sokoban, sudoku, word_problem_team
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.team_episode import parse_instance
from loopline.agents.errors import InvalidOptions
from loopline.agents.records import JsonObject, Task

Game = Literal["plan_path", "sokoban", "sudoku", "word_problems"]
Difficulty = (
    plan_path.Difficulty | sokoban.Difficulty | sudoku.Difficulty | word_problem_team.Difficulty
)
Instance = (
    plan_path.PlanPathInstance
    | sokoban.SokobanInstance
    | sudoku.SudokuInstance
    | word_problem_team.WordProblemInstance
)
P = TypeVar("P", bound=Instance)
_SIDES: dict[Game, tuple[str, ...]] = {
    "plan_path": ("rows", "columns"),
    "sokoban": ("rows", "columns"),
    "sudoku": ("size",),
    "word_problems": (),
}
"""The options of a generator that `--size` stands for."""


def difficulty_of(
    game: Game, size: int | None, difficulty: JsonObject, setting: JsonObject
) -> Difficulty:
    """What the generator is asked for: `size` cells along a side (none: its own default), its own
    options, and how it is played. Raises `InvalidOptions`, which names the option of the command
    (`--size`, `--difficulty` or `--setting`)."""
    side = _SIDES[game]
    if size is not None and not side:
        raise InvalidOptions(f"{game}: --size {size}: they have no sides; see --difficulty")
    sized = {} if size is None else dict.fromkeys(side, size)
    wanted = json.dumps({**sized, **difficulty, "setting": setting})
    try:
        match game:
            case "plan_path":
                return plan_path.Difficulty.model_validate_json(wanted)
            case "sokoban":
                return sokoban.Difficulty.model_validate_json(wanted)
            case "sudoku":
                return sudoku.Difficulty.model_validate_json(wanted)
            case "word_problems":
                return word_problem_team.Difficulty.model_validate_json(wanted)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        names = [str(part) for part in first["loc"]]
        given = ".".join(names)
        if names[:1] == ["setting"]:
            given = f"--setting {'.'.join(names[1:])}"
        elif names and names[0] in side and names[0] not in difficulty:
            given = f"--size {size}"
        elif names:
            given = f"--difficulty {given}"
        raise InvalidOptions(f"{game}: {given or '--difficulty'}: {first['msg']}") from error


def drawn_puzzles(
    difficulty: Difficulty, split: Split | str, seed: int, count: int
) -> Sequence[Instance]:
    """`count` different instances of one split; a longer list begins with the shorter one. Raises
    ValueError where there are not so many."""
    match difficulty:
        case plan_path.Difficulty():
            return plan_path.instances(split, seed, count, difficulty)
        case sokoban.Difficulty():
            return sokoban.instances(split, seed, count, difficulty)
        case sudoku.Difficulty():
            return sudoku.instances(split, seed, count, difficulty)
        case word_problem_team.Difficulty():
            return word_problem_team.instances(split, seed, count, difficulty)


def split_of_task(task: Task) -> Split | None:
    """The split that a puzzle belongs to by its content. None for a task of no game of these, and
    for a word problem that does not say its wordings. Raises `InvalidTask`."""
    match task.environment:
        case plan_path.ENVIRONMENT:
            return _instance(task, plan_path.PlanPathInstance).split
        case sokoban.ENVIRONMENT:
            return _instance(task, sokoban.SokobanInstance).split
        case sudoku.ENVIRONMENT:
            return _instance(task, sudoku.SudokuInstance).split
        case word_problem_team.ENVIRONMENT:
            try:
                return _instance(task, word_problem_team.WordProblemInstance).split
            except KeyError:
                # Of another version's generator.
                return None
        case _:
            return None


def _instance(task: Task, model: type[P]) -> P:
    return parse_instance(task.environment, model, task.instance)


def size_of(difficulty: Difficulty) -> str:
    """As in `10 x 10`, or `of 1 to 4 calculations`."""
    match difficulty:
        case sudoku.Difficulty():
            return f"{difficulty.size} x {difficulty.size}"
        case word_problem_team.Difficulty():
            low, high = difficulty.equations
            return f"of {low} to {high} calculations"
        case _:
            return f"{difficulty.rows} x {difficulty.columns}"
