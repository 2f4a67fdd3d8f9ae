"""An episode of a word problem."""

from __future__ import annotations

from loopline.agents.environments.team_episode import PLAN, TeamEpisode
from loopline.agents.environments.word_problem_team.instance import WordProblemInstance
from loopline.agents.environments.word_problem_team.puzzle import WordProblemPuzzle
from loopline.agents.environments.word_problem_team.rules import Items, Work

Working = TeamEpisode[Work, Items]


def open_episode(instance: WordProblemInstance) -> Working:
    """Open an episode at its beginning."""
    puzzle = WordProblemPuzzle(instance)
    return Working(puzzle, puzzle.start())


def open_alone(instance: WordProblemInstance, **setting: object) -> Working:
    """Open an episode that the plan agent plays alone, with these changes of the setting."""
    alone = instance.setting.model_copy(update={"team": (PLAN,), **setting})
    return open_episode(instance.model_copy(update={"setting": alone}))
