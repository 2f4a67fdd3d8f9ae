"""Word problems with a learned analysis: before its answer, each agent writes what kind of link
each sentence of the story is.

    things.times_as_many things.goal
    #### [mul(n1, n2)]

The puzzles and observations are those of the environment `word_problems`. A link's kind is the name
of its scheme (`loopline.agents.environments.word_problems.scheme`): all wordings of a kind mean the
same, and the kinds of a story determine its calculations.
"""

from __future__ import annotations

from dataclasses import replace

from loopline.agents.environments.word_problem_team import WORD_PROBLEMS
from loopline.agents.environments.word_problem_team.instance import WordProblemInstance
from loopline.agents.environments.word_problem_team.lessons import LESSONS, expert_answer
from loopline.agents.environments.word_problem_team.lessons import PIECES as TERSE_PIECES
from loopline.agents.environments.word_problem_team.puzzle import Working
from loopline.agents.environments.word_problems import schemes

_KINDS = [scheme.name for scheme in schemes() if not scheme.held_out]
PIECES = (*TERSE_PIECES, "\n#### ", *_KINDS, *(f" {kind}" for kind in _KINDS))
"""Pieces that are one token each; a kind is one token, too."""


def analyzing_expert(instance: WordProblemInstance, episode: Working) -> str:
    """Return the kinds of the story's links and the expert's answer."""
    kinds = [wording.partition("/")[0] for wording in instance.wordings]
    return f"{' '.join(kinds)}\n{expert_answer(instance, episode)}"


STORY_KINDS = replace(
    WORD_PROBLEMS,
    title="Word problems, kinds of links first",
    lessons=replace(
        LESSONS,
        expert=analyzing_expert,
        pieces=PIECES,
        training={
            **LESSONS.training,
            "network": {"context": 384, "layers": 3, "hidden": 96, "feed_forward": 192},
            "reinforced": {"limit": 20},
            "dagger": {"steps": 400, "learning_rate": 2e-3, "spelled": 0.3, "dropped": 0.1},
        },
    ),
)
"""Word problems as a game whose expert explains itself."""
