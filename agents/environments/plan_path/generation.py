"""Random grids: obstacles are drawn independently; start and goal are different and connected."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pydantic import Field

from loopline.agents.environments.grid import Cell, canonical
from loopline.agents.environments.plan_path.instance import (
    FREE,
    LEAST_SIDE,
    MOST_SIDE,
    WALL,
    PlanPathInstance,
    PlanPathSetting,
    distances_to,
)
from loopline.agents.environments.puzzle_splits import (
    Split,
    as_split,
    draw_puzzles,
    split_of,
    take_distinct,
)
from loopline.agents.records import Record

_TRIES = 5_000
"""Maximum consecutive grids without an instance; then the difficulty is considered impossible."""


class Difficulty(Record):
    """Difficulty and setting of instances."""

    rows: int = Field(default=10, ge=LEAST_SIDE, le=MOST_SIDE)
    columns: int = Field(default=10, ge=LEAST_SIDE, le=MOST_SIDE)
    obstacles: float = Field(default=0.22, ge=0, le=0.6)
    """Probability that a cell is blocked, as published."""
    least_moves: int = Field(default=1, ge=1)
    """Minimum length of the shortest path."""
    setting: PlanPathSetting = PlanPathSetting()


def stream(
    split: Split | str, seed: int, difficulty: Difficulty | None = None
) -> Iterator[PlanPathInstance]:
    """Yield instances of one split without end; the same seed yields the same instances. Raises
    ValueError for an unknown split, and while drawing if the difficulty allows no instance."""
    effective_difficulty, wanted = difficulty or Difficulty(), as_split(split)
    return draw_puzzles(
        "plan_path", wanted, seed, lambda rng: _draw(rng, wanted, effective_difficulty), _TRIES
    )


def instances(
    split: Split | str, seed: int, count: int, difficulty: Difficulty | None = None
) -> list[PlanPathInstance]:
    """Return `count` different instances of one split. Raises ValueError."""
    return take_distinct(stream(split, seed, difficulty), count, lambda instance: instance.id)


def _draw(rng: random.Random, split: Split, difficulty: Difficulty) -> PlanPathInstance | None:
    grid = tuple(
        "".join(
            WALL if rng.random() < difficulty.obstacles else FREE for _ in range(difficulty.columns)
        )
        for _ in range(difficulty.rows)
    )
    if split_of(canonical(grid)) is not split:
        return None
    free: list[Cell] = [
        (r, c) for r, row in enumerate(grid) for c, cell in enumerate(row) if cell == FREE
    ]
    if len(free) < 2:
        return None
    start, goal = rng.sample(free, 2)
    if distances_to(grid, goal).get(start, 0) < difficulty.least_moves:
        return None
    return PlanPathInstance(grid=grid, start=start, goal=goal, setting=difficulty.setting)
