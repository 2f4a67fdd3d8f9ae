"""The calls of Plan-Path's tool agent. They move a scratch walker; its path is the proposal."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from loopline.agents.environments.grid import (
    STEPS,
    Cell,
    cell_name,
    manhattan,
    neighbor,
    short_name,
)
from loopline.agents.environments.plan_path.instance import PlanPathInstance, is_free
from loopline.agents.environments.plan_path.walk import Moves, Walk, refusal
from loopline.agents.environments.tool_language import Answer, Argument, ToolFunction

Scratch = tuple[Walk, Moves]
"""State of the scratch walker, and the moves that led there."""


def functions(instance: PlanPathInstance) -> Mapping[str, ToolFunction[Scratch]]:
    """Return the tool language for one instance."""

    def step(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        walker, moves = scratch
        move = str(arguments[0])
        if walker.at == instance.goal:
            return Answer(scratch, "already at the goal", worked=False)
        refused = refusal(instance, walker, move)
        if refused is not None:
            return Answer(scratch, refused.reason, worked=False)
        walker = walker.moved(move)
        return Answer((walker, (*moves, move)), _place(instance, walker.at))

    def look(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        move, cell, free = str(arguments[0]), scratch[0].at, 0
        while is_free(instance.grid, cell := neighbor(cell, move)):
            free += 1
        return Answer(scratch, f"{free} free")

    def bfs(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        walker, moves = scratch
        path = nearest_by_search(
            instance, walker.at, min(int(arguments[0]), instance.setting.search)
        )
        if not path:
            return Answer(scratch, "found nothing nearer", worked=False)
        for move in path:
            walker = walker.moved(move)
        text = f"{', '.join(path)} to {_place(instance, walker.at)}"
        return Answer((walker, (*moves, *path)), text)

    tools = (
        ToolFunction("step", (("move", "move"),), "one move (U, D, L or R)", step),
        ToolFunction("look", (("move", "move"),), "how many cells are free that way", look),
        ToolFunction(
            "bfs",
            (("n", "number"),),
            f"search up to n moves far (at most {instance.setting.search}) and walk to the cell "
            "found that is nearest to the goal",
            bfs,
        ),
    )
    able = instance.setting.search > 0
    return {tool.name: tool for tool in tools if able or tool.name != "bfs"}


def nearest_by_search(instance: PlanPathInstance, start: Cell, reach: int) -> tuple[str, ...]:
    """Return the moves to the goal if it is at most `reach` moves away, else to the cell within
    reach with the smallest Manhattan distance to it (then the fewest moves); empty if no cell is
    closer than `start`."""
    paths: dict[Cell, tuple[str, ...]] = {start: ()}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        if len(paths[cell]) == reach:
            break
        for move in STEPS:
            neighbour = neighbor(cell, move)
            if neighbour not in paths and is_free(instance.grid, neighbour):
                paths[neighbour] = (*paths[cell], move)
                queue.append(neighbour)
    best = min(paths, key=lambda cell: (manhattan(cell, instance.goal), len(paths[cell])))
    return paths[best]


def _place(instance: PlanPathInstance, cell: Cell) -> str:
    if cell == instance.goal:
        return "the goal"
    return short_name(cell) if instance.setting.walls else cell_name(cell)
