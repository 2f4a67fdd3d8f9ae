"""Verifies that moves lead from the start to the goal: an independent implementation of the rules,
which shares no code with the episode that it judges."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loopline.agents.environments.game import Verdict
from loopline.agents.environments.plan_path.instance import PlanPathInstance


def check_walk(instance: PlanPathInstance, answers: Sequence[Sequence[str]]) -> Verdict:
    """Repeat the walk, answer by answer. An impossible move is skipped, and under strict rules ends
    its answer; the goal or the last allowed move ends the walk.

    The measure `moves_over_shortest` applies to a walk that ends at the goal.
    """
    strict = instance.setting.rules == "strict"
    width = len(instance.grid[0])
    cells = "".join(instance.grid)
    here = instance.start[0] * width + instance.start[1]
    goal = instance.goal[0] * width + instance.goal[1]
    move_count, most = 0, math.ceil(instance.shortest * instance.setting.detour)
    for answer in answers:
        for move in answer:
            if here == goal or (strict and move_count >= most):
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
                here, move_count = there, move_count + 1
            elif strict:
                break
    if here == goal:
        return Verdict(measures={"moves_over_shortest": float(move_count - instance.shortest)})
    row, column = divmod(here, width)
    return Verdict(f"the walk ends at row {row + 1}, column {column + 1}, not at the goal")
