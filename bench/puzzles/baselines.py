"""What players by hand solve of the same instances: those of the arms' games
(`trainers.grpo.arms.games`)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.environments.plan_path import POLICIES, PlanPathInstance, plays
from agents.environments.puzzles import Instance
from agents.environments.sokoban import SokobanInstance
from agents.environments.sudoku import SudokuInstance
from agents.environments.word_problem_team import WordProblemInstance
from agents.records import JsonObject
from trainers.grpo.arms.games import sokoban, sudoku, word_problems
from trainers.grpo.arms.games.plan_path import MOVES_PER_CELL


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
            moves = MOVES_PER_CELL * max(len(grid), len(grid[0]))
            return {name: plays(one, instance, moves, seed) for name, one in POLICIES.items()}
        case SudokuInstance():
            return {name: sudoku.fills(one, instance) for name, one in sudoku.PLAYERS.items()}
        case SokobanInstance():
            players = sokoban.PLAYERS if len(instance.parsed[1].boxes) == 1 else ()
            return {name: sokoban.pushes_home(one, instance) for name, one in players}
        case WordProblemInstance():
            players = word_problems.PLAYERS.items()
            return {name: word_problems.answers(one, instance) for name, one in players}
