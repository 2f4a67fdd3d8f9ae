"""Sudoku as a `Game`."""

from __future__ import annotations

from agents.environments.sudoku.instance import ENVIRONMENT, SudokuInstance
from agents.environments.sudoku.puzzle import SudokuPuzzle
from agents.environments.sudoku.rules import Writes
from agents.environments.sudoku.solver import Grid
from agents.environments.team_episode import TeamEpisode, parse_instance
from agents.records import JsonObject


class Sudoku:
    """See `agents.environments.game.Game`."""

    name = ENVIRONMENT

    def reset(self, instance: JsonObject) -> TeamEpisode[Grid, Writes]:
        """Raises `InvalidTask` for an object that is no instance, and for one that has not exactly
        one completion."""
        puzzle = SudokuPuzzle(parse_instance(self.name, SudokuInstance, instance))
        return TeamEpisode[Grid, Writes](puzzle, puzzle.start())
