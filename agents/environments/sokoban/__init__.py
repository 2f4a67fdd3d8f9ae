"""Sokoban: push every box onto a target. Levels of 6 x 6 to 10 x 10, generated or Boxoban's.

The modules: `level` (text and rules), `solver` (fewest pushes), `instance` (the data and its
split), `puzzle` (actions and rewards), `tools` (the tool agent's calls), `verification`,
`generation`, `boxoban`, `players` (by hand), `lessons`, `environment` (the object).
"""

from __future__ import annotations

from loopline.agents.environments.sokoban.boxoban import BoxobanLevel, read_boxoban
from loopline.agents.environments.sokoban.generation import (
    Difficulty,
    instances,
    push_count,
    stream,
)
from loopline.agents.environments.sokoban.instance import (
    ENVIRONMENT,
    SokobanInstance,
    SokobanSetting,
)
from loopline.agents.environments.sokoban.solver import SearchLimit, solve
from loopline.agents.environments.sokoban.verification import check_play

__all__ = [
    "ENVIRONMENT", "BoxobanLevel", "Difficulty", "SearchLimit", "SokobanInstance",
    "SokobanSetting", "check_play", "instances", "push_count", "read_boxoban", "solve", "stream",
]  # fmt: skip
