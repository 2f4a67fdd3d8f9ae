"""An episode of Sudoku."""

from __future__ import annotations

from loopline.agents.environments.sudoku.instance import SudokuInstance
from loopline.agents.environments.sudoku.puzzle import SudokuPuzzle
from loopline.agents.environments.sudoku.rules import Writes
from loopline.agents.environments.sudoku.solver import Grid
from loopline.agents.environments.team_episode import PLAN, TeamEpisode

Filling = TeamEpisode[Grid, Writes]


def open_episode(instance: SudokuInstance) -> Filling:
    """Open an episode at its beginning."""
    puzzle = SudokuPuzzle(instance)
    return Filling(puzzle, puzzle.start())


def open_alone(instance: SudokuInstance, **setting: object) -> Filling:
    """Open an episode that the plan agent plays alone, with these changes of the setting."""
    alone = instance.setting.model_copy(update={"team": (PLAN,), **setting})
    return open_episode(instance.model_copy(update={"setting": alone}))
