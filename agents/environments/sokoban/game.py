"""Sokoban as a `Game`."""

from __future__ import annotations

from agents.environments.sokoban.instance import ENVIRONMENT, SokobanInstance
from agents.environments.sokoban.level import Moves, Play
from agents.environments.sokoban.puzzle import SokobanPuzzle
from agents.environments.team_episode import TeamEpisode, parse_instance
from agents.records import JsonObject


class Sokoban:
    """See `agents.environments.game.Game`."""

    name = ENVIRONMENT

    def reset(self, instance: JsonObject) -> TeamEpisode[Play, Moves]:
        """Raises `InvalidTask` for an object that is no instance."""
        puzzle = SokobanPuzzle(parse_instance(self.name, SokobanInstance, instance))
        return TeamEpisode[Play, Moves](puzzle, puzzle.start())
