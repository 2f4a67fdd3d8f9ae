"""What players by hand solve of the same instances: those of the arms' games
(`trainers.grpo.arms.games`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from agents.environments.game import TOOL, Episode
from agents.environments.marked_answers import MARK
from agents.environments.plan_path import POLICIES, PlanPathInstance, plays
from agents.environments.puzzles import Instance
from agents.environments.sokoban import SokobanInstance
from agents.environments.sudoku import SudokuInstance
from agents.environments.word_problem_team import WordProblemInstance
from agents.records import JsonObject
from trainers.grpo.arms.games import plan_path, sokoban, sudoku, word_problems
from trainers.grpo.arms.games.tables import solves

PuzzleT = TypeVar("PuzzleT", PlanPathInstance, SudokuInstance, SokobanInstance)

TOOL_ALONE = "always the tool"
"""The tool agent alone, which says the same in every turn: the calls that it may make, all of the
tool that looks ahead, as far as it may. What a team solves beyond that it has thought of itself."""


def baselines_of(instances: Sequence[Instance], seed: int) -> JsonObject:
    """Player → instances solved. Deterministic for a seed. Nobody plays where one of the levels has
    several boxes: the players of Sokoban know what to do with one."""
    solved = [_solved(one, seed) for one in instances]
    if not all(solved):
        return {}
    return {name: sum(each[name] for each in solved) for name in (solved[0] if solved else ())}


def _solved(instance: Instance, seed: int) -> dict[str, bool]:
    """By player."""
    match instance:
        case PlanPathInstance(grid=grid):
            moves = plan_path.MOVES_PER_CELL * max(len(grid), len(grid[0]))
            found = {name: plays(one, instance, moves, seed) for name, one in POLICIES.items()}
            return {**found, TOOL_ALONE: _calls_alone(plan_path.opened, instance, "bfs")}
        case SudokuInstance():
            found = {name: sudoku.fills(one, instance) for name, one in sudoku.PLAYERS.items()}
            return {**found, TOOL_ALONE: _calls_alone(sudoku.opened, instance, "singles")}
        case SokobanInstance():
            if len(instance.parsed[1].boxes) > 1:
                return {}
            found = {name: sokoban.pushes_home(one, instance) for name, one in sokoban.PLAYERS}
            return {**found, TOOL_ALONE: _calls_alone(sokoban.opened, instance, "bfs")}
        case WordProblemInstance():
            players = word_problems.PLAYERS.items()
            return {name: word_problems.answers(one, instance) for name, one in players}


def _calls_alone(opened: Callable[[PuzzleT], Episode], instance: PuzzleT, tool: str) -> bool:
    setting = instance.setting.model_copy(update={"team": (TOOL,), "python": False})
    alone = instance.model_copy(update={"setting": setting})
    calls = ", ".join([f"{tool}({setting.search})"] * setting.calls)
    return solves(opened(alone), lambda _: f"{MARK} [{calls}]")
