"""Plan-Path with the whole grid in sight, as a game to learn: the tool agent writes its search as
text before it answers, so no tool searches for it.

    Search: 5,6 4,6 3,6 3,5
    Path: 3,5 3,6 4,6 5,6
    #### [step(R), step(D), step(D)]

The search goes from the goal to the walker, depth first: always to the free cell next to the last
one, not searched before, that is nearest to the walker as the crow flies; from a dead end back by
one cell. The path goes from the walker to the goal, always to the neighbour that was searched
first. So each cell follows from its neighbours, the walls and the cells that stand in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from loopline.agents.environments.grid import STEPS, Cell, move_between, neighbor, short_name
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.plan_path import PLAN_PATH
from loopline.agents.environments.plan_path.generation import Difficulty
from loopline.agents.environments.plan_path.instance import (
    PlanPathInstance,
    PlanPathSetting,
    is_free,
)
from loopline.agents.environments.plan_path.lessons import LESSONS
from loopline.agents.environments.plan_path.lessons import PIECES as TERSE_PIECES
from loopline.agents.environments.plan_path.puzzle import Walking
from loopline.agents.environments.team_episode import AGENTS, PLAN

_SIDE = 10
PIECES = (
    *TERSE_PIECES,
    *(f" {short_name((row, column))}" for row in range(_SIDE) for column in range(_SIDE)),
    "Walls:", "\nA:", ". G:", "Search:", "\nPath:", "\n#### ",
    *(f"{before}step({move})" for before in ("[", ", ") for move in STEPS),
    *(f"\nstep({move}):" for move in STEPS),
)  # fmt: skip
"""Pieces that are one token each. A cell is one token, wherever it is written."""


def search_cells(instance: PlanPathInstance, start: Cell) -> list[Cell]:
    """Return the cells of a depth-first search from the goal to `start`, in order; a cell occurs
    again where the search comes back to it. Raises ValueError if there is no way."""
    stack, cells, searched = [instance.goal], [instance.goal], {instance.goal}
    while stack and stack[-1] != start:
        new = [
            cell
            for move in STEPS
            if (cell := neighbor(stack[-1], move)) not in searched and is_free(instance.grid, cell)
        ]
        if new:
            stack.append(min(new, key=lambda cell: _squared_distance(cell, start)))
            searched.add(stack[-1])
        else:
            stack.pop()
        cells += stack[-1:]
    if not stack:
        raise ValueError(f"there is no path from {start} to the goal")
    return cells


def path_through(cells: Sequence[Cell]) -> list[Cell]:
    """Return the path from the last of the searched cells to the first, always to the neighbour
    that was searched first. A neighbour that was searched before a cell is one of its ancestors in
    the search, so the path is at most as long as the search's own way."""
    order = {cell: at for at, cell in reversed(list(enumerate(cells)))}
    path = [cells[-1]]
    while path[-1] != cells[0]:
        neighbours = (neighbor(path[-1], move) for move in STEPS)
        path.append(min((cell for cell in neighbours if cell in order), key=order.__getitem__))
    return path


def expert_answer(instance: PlanPathInstance, episode: Walking) -> str | None:
    """Return the text of a player that searches; None if its path is longer than the moves left.
    Its plan agent carries out what is proposed."""
    walk, most = episode.state, instance.most_moves
    proposed = episode.proposal.action if episode.proposal is not None else None
    if episode.agent == PLAN and proposed:
        return f"{MARK} {episode.puzzle.show(proposed)}"
    cells = search_cells(instance, walk.at)
    path = path_through(cells)
    if most is not None and walk.moves + len(path) - 1 > most:
        return None
    moves = [move_between(*cells) for cells in pairwise(path)]
    if episode.agent != PLAN:
        moves = [f"step({move})" for move in moves[: instance.setting.calls]]
    return f"Search:{_names(cells)}\nPath:{_names(path)}\n{MARK} [{', '.join(moves)}]"


def _squared_distance(first: Cell, second: Cell) -> int:
    return (first[0] - second[0]) ** 2 + (first[1] - second[1]) ** 2


def _names(cells: Sequence[Cell]) -> str:
    return "".join(f" {short_name(cell)}" for cell in cells)


WHOLE_GRID = replace(
    PLAN_PATH,
    title="Plan-Path, whole grid",
    lessons=replace(
        LESSONS,
        puzzle=Difficulty(
            rows=_SIDE,
            columns=_SIDE,
            least_moves=6,
            setting=PlanPathSetting(
                turns=4, team=AGENTS, calls=40, search=0, brief=True, walls=True
            ),
        ),
        expert=expert_answer,
        pieces=PIECES,
        training={
            "network": {"layers": 4, "context": 512},
            "reinforced": {"limit": 192},
            "dagger": {"steps": 500, "episodes": 128, "batch": 24, "warmup": 10},
        },
    ),
)
"""Plan-Path as its own game, with grids of 10 x 10."""
