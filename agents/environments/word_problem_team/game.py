"""Word problems as a `Game`."""

from __future__ import annotations

from loopline.agents.environments.team_episode import TeamEpisode, parse_instance
from loopline.agents.environments.word_problem_team.instance import ENVIRONMENT, WordProblemInstance
from loopline.agents.environments.word_problem_team.puzzle import WordProblemPuzzle
from loopline.agents.environments.word_problem_team.rules import Items, Work
from loopline.agents.records import JsonObject


class WordProblems:
    """See `loopline.agents.environments.game.Game`."""

    name = ENVIRONMENT

    def reset(self, instance: JsonObject) -> TeamEpisode[Work, Items]:
        """Raises `InvalidTask` for an object that is no instance, and for one whose solution does
        not follow from its text."""
        puzzle = WordProblemPuzzle(parse_instance(self.name, WordProblemInstance, instance))
        return TeamEpisode[Work, Items](puzzle, puzzle.start())
