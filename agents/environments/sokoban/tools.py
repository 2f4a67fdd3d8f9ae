"""The calls of Sokoban's tool agent. They move a scratch player; its path is the proposal. Rows and
columns count from 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from loopline.agents.environments.grid import MIRRORED, cell_name, neighbor
from loopline.agents.environments.sokoban.instance import SokobanInstance
from loopline.agents.environments.sokoban.level import Moves, Play
from loopline.agents.environments.sokoban.solver import nearest_by_pushes, paths_to_cells
from loopline.agents.environments.tool_language import Answer, Argument, Kind, ToolFunction

Scratch = tuple[Play, Moves]
Run = Callable[[Scratch, tuple[Argument, ...]], Answer[Scratch]]

MAX_SEARCHED = 2_000
"""Maximum states of one search: some tenths of a second on the largest board."""


def functions(instance: SokobanInstance) -> Mapping[str, ToolFunction[Scratch]]:
    """Return the tool language for one instance."""
    level = instance.parsed[0]

    def unless_solved(run: Run) -> Run:
        def guarded(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
            if level.solved(scratch[0]):
                return Answer(scratch, "solved already", worked=False)
            return run(scratch, arguments)

        return guarded

    def after(scratch: Scratch, moves: Moves) -> Scratch:
        play = scratch[0]
        for move in moves:
            play = level.moved(play, move)
        return play, (*scratch[1], *moves)

    def place(scratch: Scratch) -> str:
        return "solved" if level.solved(scratch[0]) else cell_name(scratch[0].player)

    def step(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        move = str(arguments[0])
        refused = level.refusal(scratch[0], move)
        if refused is not None:
            return Answer(scratch, refused.reason, worked=False)
        moved = after(scratch, (move,))
        return Answer(moved, place(moved))

    def walk(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        cell = (int(arguments[0]) - 1, int(arguments[1]) - 1)
        path = paths_to_cells(level, scratch[0]).get(cell)
        if path is None:
            return Answer(scratch, "no way without a push", worked=False)
        moved = after(scratch, path)
        return Answer(moved, place(moved))

    def push(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        box, move = (int(arguments[0]) - 1, int(arguments[1]) - 1), str(arguments[2])
        if box not in scratch[0].boxes:
            return Answer(scratch, "no box there", worked=False)
        path = paths_to_cells(level, scratch[0]).get(neighbor(box, MIRRORED[move]))
        if path is None:
            return Answer(scratch, "no way behind the box", worked=False)
        behind = after(scratch, path)
        if level.refusal(behind[0], move) is not None:
            return Answer(scratch, "the box can't go there", worked=False)
        pushed = after(behind, (move,))
        stuck = level.is_corner(neighbor(box, move)) and neighbor(box, move) not in level.targets
        return Answer(pushed, "stuck in a corner" if stuck else place(pushed))

    def corner(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        cell = (int(arguments[0]) - 1, int(arguments[1]) - 1)
        if cell not in level.floor:
            return Answer(scratch, "wall", worked=False)
        return Answer(scratch, "yes" if level.is_corner(cell) else "no")

    def bfs(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
        pushes = min(int(arguments[0]), instance.setting.search)
        path = nearest_by_pushes(level, scratch[0], pushes, MAX_SEARCHED)
        if not path:
            return Answer(scratch, "found nothing better", worked=False)
        moved = after(scratch, path)
        return Answer(moved, f"{', '.join(path)} to {place(moved)}")

    cell: tuple[tuple[str, Kind], ...] = (("row", "number"), ("column", "number"))
    tools = (
        ToolFunction("step", (("move", "move"),), "one move (U, D, L or R)", unless_solved(step)),
        ToolFunction("walk", cell, "walk there without a push", unless_solved(walk)),
        ToolFunction(
            "push", (*cell, ("move", "move")), "walk to a box and push it once", unless_solved(push)
        ),
        ToolFunction("corner", cell, "whether a box would be stuck there", corner),
        ToolFunction(
            "bfs",
            (("n", "number"),),
            f"search up to n pushes far (at most {instance.setting.search}) and play what brings "
            "the boxes nearest to targets",
            unless_solved(bfs),
        ),
    )
    able = instance.setting.search > 0
    return {tool.name: tool for tool in tools if able or tool.name != "bfs"}
