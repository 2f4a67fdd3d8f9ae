"""An episode of Plan-Path."""

from __future__ import annotations

from loopline.agents.environments.plan_path.instance import PlanPathInstance
from loopline.agents.environments.plan_path.puzzle import PlanPathPuzzle
from loopline.agents.environments.plan_path.walk import Moves, Walk
from loopline.agents.environments.team_episode import TeamEpisode

Walking = TeamEpisode[Walk, Moves]


def open_episode(instance: PlanPathInstance) -> Walking:
    """Open an episode at its beginning."""
    puzzle = PlanPathPuzzle(instance)
    return Walking(puzzle, puzzle.start())
