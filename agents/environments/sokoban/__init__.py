"""Sokoban: push every box onto a target. Levels have 6 x 6 to 10 x 10 cells, generated or from
Boxoban.

The modules: `level` (text and rules), `solver` (fewest pushes), `instance` (the data and its
split), `puzzle` (actions and rewards), `tools` (the tool agent's calls), `verification`,
`generation`, `boxoban`, `players` (hand-written), `lessons`, and the environment here.
"""

from __future__ import annotations

from functools import partial

from loopline.agents.environments.environment import Environment, PublishedPuzzles
from loopline.agents.environments.sokoban.boxoban import read_boxoban
from loopline.agents.environments.sokoban.generation import Difficulty, stream
from loopline.agents.environments.sokoban.instance import ENVIRONMENT, SokobanInstance
from loopline.agents.environments.sokoban.lessons import LESSONS
from loopline.agents.environments.sokoban.players import PLAYERS, player_solves
from loopline.agents.environments.sokoban.puzzle import Pushing, open_episode
from loopline.agents.environments.team_episode import SPECS, TOGETHER

SOKOBAN = Environment[Difficulty, SokobanInstance, Pushing](
    name=ENVIRONMENT,
    title="Sokoban",
    agents=SPECS,
    team_does=TOGETHER,
    difficulty=Difficulty,
    instance=SokobanInstance,
    stream=stream,
    open=open_episode,
    players={name: partial(player_solves, player) for name, player in PLAYERS.items()},
    players_do="pushes chosen one by one without memory, with an agent's moves",
    by_hand=lambda instance: len(instance.parsed[1].boxes) == 1,
    sides=("rows", "columns"),
    describe=lambda difficulty: f"{difficulty.rows} x {difficulty.columns}",
    solution=lambda instance: "every box on a target",
    published=PublishedPuzzles(
        name="boxoban",
        title="Boxoban",
        source="https://github.com/google-deepmind/boxoban-levels",
        read=lambda text, origin, setting: [
            (level.number, level.instance)
            for level in read_boxoban(text, origin=origin, setting=setting)
        ],
    ),
    lessons=LESSONS,
)
