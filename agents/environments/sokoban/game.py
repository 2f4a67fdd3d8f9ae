"""An episode of Sokoban."""

from __future__ import annotations

from loopline.agents.environments.sokoban.instance import SokobanInstance
from loopline.agents.environments.sokoban.level import Moves, Play
from loopline.agents.environments.sokoban.puzzle import SokobanPuzzle
from loopline.agents.environments.team_episode import PLAN, TeamEpisode

Pushing = TeamEpisode[Play, Moves]


def open_episode(instance: SokobanInstance) -> Pushing:
    """Open an episode at its beginning."""
    puzzle = SokobanPuzzle(instance)
    return Pushing(puzzle, puzzle.start())


def open_alone(instance: SokobanInstance, **setting: object) -> Pushing:
    """Open an episode that the plan agent plays alone, with these changes of the setting."""
    alone = instance.setting.model_copy(update={"team": (PLAN,), **setting})
    return open_episode(instance.model_copy(update={"setting": alone}))
