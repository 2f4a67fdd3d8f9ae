"""Sokoban as a `Game`."""

from __future__ import annotations

from loopline.agents.environments.sokoban.instance import ENVIRONMENT, SokobanInstance
from loopline.agents.environments.sokoban.level import Moves, Play
from loopline.agents.environments.sokoban.puzzle import SokobanPuzzle
from loopline.agents.environments.team_episode import TeamEpisode, parse_instance
from loopline.agents.records import JsonObject


class Sokoban:
    """See `loopline.agents.environments.game.Game`."""

    name = ENVIRONMENT

    def reset(self, instance: JsonObject) -> TeamEpisode[Play, Moves]:
        """Raises `InvalidTask` for an object that is no instance."""
        puzzle = SokobanPuzzle(parse_instance(self.name, SokobanInstance, instance))
        return TeamEpisode[Play, Moves](puzzle, puzzle.start())
