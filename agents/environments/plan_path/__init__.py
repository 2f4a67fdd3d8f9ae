"""Plan-Path: find a path through a grid with obstacles.

The modules: `instance` (the data, its split, breadth-first distances), `puzzle` (rules and
rewards), `tools` (the tool agent's calls), `verification`, `generation`, `players` (hand-written),
`lessons`, and the environment here.
"""

from __future__ import annotations

from functools import partial

from loopline.agents.environments.environment import Environment
from loopline.agents.environments.plan_path.generation import Difficulty, stream
from loopline.agents.environments.plan_path.instance import (
    ENVIRONMENT,
    PlanPathInstance,
    shortest_path,
)
from loopline.agents.environments.plan_path.lessons import LESSONS
from loopline.agents.environments.plan_path.players import POLICIES, solves
from loopline.agents.environments.plan_path.puzzle import Walking, open_episode
from loopline.agents.environments.team_episode import SPECS, TOGETHER

PLAN_PATH = Environment[Difficulty, PlanPathInstance, Walking](
    name=ENVIRONMENT,
    title="Plan-Path",
    agents=SPECS,
    team_does=TOGETHER,
    difficulty=Difficulty,
    instance=PlanPathInstance,
    stream=stream,
    open=open_episode,
    players={name: partial(solves, policy) for name, policy in POLICIES.items()},
    players_do="as many answers as there are turns, each of moves chosen one by one",
    sides=("rows", "columns"),
    describe=lambda difficulty: f"{difficulty.rows} x {difficulty.columns}",
    solution=lambda instance: f"{''.join(shortest_path(instance, instance.start))}, or another way",
    lessons=LESSONS,
)
