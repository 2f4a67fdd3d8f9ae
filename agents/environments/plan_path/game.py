"""Plan-Path as a `Game`."""

from __future__ import annotations

from loopline.agents.environments.plan_path.instance import ENVIRONMENT, PlanPathInstance
from loopline.agents.environments.plan_path.puzzle import PlanPathPuzzle
from loopline.agents.environments.plan_path.walk import Moves, Walk
from loopline.agents.environments.team_episode import TeamEpisode, parse_instance
from loopline.agents.records import JsonObject


class PlanPath:
    """See `loopline.agents.environments.game.Game`."""

    name = ENVIRONMENT

    def reset(self, instance: JsonObject) -> TeamEpisode[Walk, Moves]:
        """Raises `InvalidTask` for an object that is no instance, or for one without a way."""
        puzzle = PlanPathPuzzle(parse_instance(self.name, PlanPathInstance, instance))
        return TeamEpisode[Walk, Moves](puzzle, puzzle.start())
