"""Whether moves lead from the start to the goal: a reading of the rules of its own, which shares no
code with the episode that it judges."""

from __future__ import annotations

from collections.abc import Sequence

from agents.environments.game import Verdict
from agents.environments.plan_path.instance import PlanPathInstance


def check_walk(instance: PlanPathInstance, moves: Sequence[str]) -> Verdict:
    """Walk anew. A move that is not possible is not made; the goal ends the walk."""
    width = len(instance.grid[0])
    cells = "".join(instance.grid)
    here = instance.start[0] * width + instance.start[1]
    goal = instance.goal[0] * width + instance.goal[1]
    for move in moves:
        if here == goal:
            break
        column = here % width
        possible = {
            "U": here >= width,
            "D": here < len(cells) - width,
            "L": column > 0,
            "R": column < width - 1,
        }
        there = here + {"U": -width, "D": width, "L": -1, "R": 1}[move]
        if possible[move] and cells[there] == ".":
            here = there
    if here == goal:
        return Verdict()
    row, column = divmod(here, width)
    return Verdict(f"the walk ends at row {row + 1}, column {column + 1}, not at the goal")
