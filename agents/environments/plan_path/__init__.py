"""Plan-Path: find a way through a grid with obstacles.

The modules: `instance` (the data, its split, breadth-first distances), `puzzle` (rules and
rewards), `tools` (the tool agent's calls), `verification`, `generation`, `players` (by hand),
`lessons`, `environment` (the object).
"""

from __future__ import annotations

from loopline.agents.environments.plan_path.generation import Difficulty, instances, stream
from loopline.agents.environments.plan_path.instance import (
    ENVIRONMENT,
    PlanPathInstance,
    PlanPathSetting,
    shortest_path,
)
from loopline.agents.environments.plan_path.players import POLICIES, solves
from loopline.agents.environments.plan_path.verification import check_walk

__all__ = [
    "ENVIRONMENT",
    "POLICIES",
    "Difficulty",
    "PlanPathInstance",
    "PlanPathSetting",
    "check_walk",
    "instances",
    "shortest_path",
    "solves",
    "stream",
]  # fmt: skip
