"""Sudoku as a `Game`."""

from __future__ import annotations

from loopline.agents.environments.sudoku.instance import ENVIRONMENT, SudokuInstance
from loopline.agents.environments.sudoku.puzzle import SudokuPuzzle
from loopline.agents.environments.sudoku.rules import Writes
from loopline.agents.environments.sudoku.solver import Grid
from loopline.agents.environments.team_episode import TeamEpisode, parse_instance
from loopline.agents.records import JsonObject


class Sudoku:
    """See `loopline.agents.environments.game.Game`."""

    name = ENVIRONMENT

    def reset(self, instance: JsonObject) -> TeamEpisode[Grid, Writes]:
        """Raises `InvalidTask` for an object that is no instance, and for one that has not exactly
        one completion."""
        puzzle = SudokuPuzzle(parse_instance(self.name, SudokuInstance, instance))
        return TeamEpisode[Grid, Writes](puzzle, puzzle.start())
