"""Generated word problems for two agents: one calculates, the other keeps and answers.

The modules: `numbers` (those of a text), `instance` (the data and its split), `rules`, `puzzle`
(actions and rewards), `tools` (the tool agent's calls), `verification`, `generation`,
`players` (by hand), `lessons`, `environment` (the object).
"""

from __future__ import annotations

from loopline.agents.environments.word_problem_team.generation import Difficulty, instances, stream
from loopline.agents.environments.word_problem_team.instance import (
    ENVIRONMENT,
    Equation,
    WordProblemInstance,
    WordProblemSetting,
    split_of_wording,
)
from loopline.agents.environments.word_problem_team.verification import check_work

__all__ = [
    "ENVIRONMENT", "Difficulty", "Equation", "WordProblemInstance", "WordProblemSetting",
    "check_work", "instances", "split_of_wording", "stream",
]  # fmt: skip
