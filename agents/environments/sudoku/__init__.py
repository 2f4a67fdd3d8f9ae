"""Sudoku of 4 x 4 and 9 x 9.

The modules: `solver` (completions), `instance` (the data and its split), `rules`, `puzzle` (actions
and rewards), `tools` (the tool agent's calls), `verification`, `generation`, `players`
(hand-written), `lessons`, and the environment here.
"""

from __future__ import annotations

from functools import partial

from loopline.agents.environments.environment import Environment
from loopline.agents.environments.sudoku.generation import Difficulty, stream
from loopline.agents.environments.sudoku.instance import ENVIRONMENT, SudokuInstance
from loopline.agents.environments.sudoku.lessons import LESSONS
from loopline.agents.environments.sudoku.players import PLAYERS, player_solves
from loopline.agents.environments.sudoku.puzzle import Filling, open_episode
from loopline.agents.environments.team_episode import SPECS, TOGETHER

SUDOKU = Environment[Difficulty, SudokuInstance, Filling](
    name=ENVIRONMENT,
    title="Sudoku",
    agents=SPECS,
    team_does=TOGETHER,
    difficulty=Difficulty,
    instance=SudokuInstance,
    stream=stream,
    open=open_episode,
    players={name: partial(player_solves, player) for name, player in PLAYERS.items()},
    players_do="digit after digit, in every turn from the given ones",
    sides=("size",),
    describe=lambda difficulty: f"{difficulty.size} x {difficulty.size}",
    solution=lambda instance: " ".join("".join(map(str, row)) for row in instance.solution),
    lessons=LESSONS,
)
