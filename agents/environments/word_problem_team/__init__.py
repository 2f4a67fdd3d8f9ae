"""Generated word problems for two agents: one calculates, the other keeps and answers.

The modules: `numbers` (those in a text), `instance` (the data and its split), `rules`, `puzzle`
(actions and rewards), `tools` (the tool agent's calls), `verification`, `generation`, `players`
(hand-written), `lessons`, and the environment here.
"""

from __future__ import annotations

from functools import partial

from loopline.agents.environments.environment import Environment
from loopline.agents.environments.team_episode import SPECS, TOGETHER
from loopline.agents.environments.word_problem_team.generation import Difficulty, stream
from loopline.agents.environments.word_problem_team.instance import ENVIRONMENT, WordProblemInstance
from loopline.agents.environments.word_problem_team.lessons import LESSONS
from loopline.agents.environments.word_problem_team.players import PLAYERS, player_solves
from loopline.agents.environments.word_problem_team.puzzle import Working, open_episode

WORD_PROBLEMS = Environment[Difficulty, WordProblemInstance, Working](
    name=ENVIRONMENT,
    title="Word problems",
    agents=SPECS,
    team_does=TOGETHER,
    difficulty=Difficulty,
    instance=WordProblemInstance,
    stream=stream,
    open=open_episode,
    players={name: partial(player_solves, player) for name, player in PLAYERS.items()},
    players_do="one answer, by simple rules of reading",
    describe=lambda difficulty: "of {} to {} calculations".format(*difficulty.equations),
    solution=lambda instance: str(instance.answer),
    lessons=LESSONS,
)
