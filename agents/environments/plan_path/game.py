"""Plan-Path as a `Game`."""

from __future__ import annotations

from agents.environments.plan_path.instance import ENVIRONMENT, PlanPathInstance
from agents.environments.plan_path.puzzle import PlanPathPuzzle
from agents.environments.plan_path.walk import Moves, Walk
from agents.environments.team_episode import TeamEpisode, parse_instance
from agents.records import JsonObject


class PlanPath:
    """See `agents.environments.game.Game`."""

    name = ENVIRONMENT

    def reset(self, instance: JsonObject) -> TeamEpisode[Walk, Moves]:
        """Raises `InvalidTask` for an object that is no instance, or for one without a way."""
        puzzle = PlanPathPuzzle(parse_instance(self.name, PlanPathInstance, instance))
        return TeamEpisode[Walk, Moves](puzzle, puzzle.start())
