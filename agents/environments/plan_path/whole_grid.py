"""Plan-Path with the whole grid in sight, as a game to learn: the tool agent writes its search as
text before it answers, so no tool searches for it.

The search starts at the goal. Line n lists the cells that are n moves from it:

    0: 5,6
    1: 4,6 6,6 5,5
    2: 3,6 4,5 7,6
    3: 3,5
    Path: 3,5 3,6 4,6 5,6
    #### [step(R), step(D), step(D)]

Each cell follows from cells that the text already has: a line from the line before it, the list of
walls and the cells that are listed already; the path from the lines, backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopline.agents.environments.grid import STEPS, Cell, neighbor, short_name
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.plan_path import PLAN_PATH
from loopline.agents.environments.plan_path.generation import Difficulty
from loopline.agents.environments.plan_path.instance import (
    PlanPathInstance,
    PlanPathSetting,
    is_free,
    shortest_path,
)
from loopline.agents.environments.plan_path.lessons import LESSONS
from loopline.agents.environments.plan_path.lessons import PIECES as TERSE_PIECES
from loopline.agents.environments.plan_path.puzzle import Walking
from loopline.agents.environments.team_episode import AGENTS, PLAN

_SIDE = 10
_LINES = 40
"""Lines of a search that have a token for their number; hardly any search is longer."""
PIECES = (
    *TERSE_PIECES,
    *(f" {short_name((row, column))}" for row in range(_SIDE) for column in range(_SIDE)),
    "Walls:", "\nA:", ". G:", "0:", *(f"\n{number}:" for number in range(1, _LINES + 1)),
    "\nPath:", "\n#### ",
)  # fmt: skip
"""Pieces that are one token each. A cell is one token, wherever it is written."""


def search_lines(instance: PlanPathInstance, start: Cell) -> list[list[Cell]]:
    """Return the cells that are 0, 1, 2, … moves from the goal, up to the distance of `start`,
    which is then the only cell of its line.

    A line is in the order of the line before it: the new neighbours of its first cell, up, down,
    left and right, then those of its second.
    """
    lines = [[instance.goal]]
    listed = {instance.goal}
    while start not in listed:
        line = list(
            dict.fromkeys(
                cell
                for before in lines[-1]
                for move in STEPS
                if (cell := neighbor(before, move)) not in listed and is_free(instance.grid, cell)
            )
        )
        if not line:
            raise ValueError(f"there is no path from {start} to the goal")
        lines.append([start] if start in line else line)
        listed.update(line)
    return lines


def search_text(instance: PlanPathInstance, start: Cell) -> str:
    """Return the search and the first cells of a shortest path, one more than a tool agent can make
    moves."""
    searched = [
        f"{number}:{_cells(line)}" for number, line in enumerate(search_lines(instance, start))
    ]
    path = [start]
    for move in shortest_path(instance, start)[: instance.setting.calls]:
        path.append(neighbor(path[-1], move))
    return "\n".join((*searched, f"Path:{_cells(path)}"))


def expert_answer(instance: PlanPathInstance, episode: Walking) -> str | None:
    """Return the text of a player that searches; None if the moves left are too few for the rest of
    the way. Its plan agent carries out what is proposed."""
    walk, most = episode.state, instance.most_moves
    if most is not None and walk.moves + instance.distances[walk.at] > most:
        return None
    proposed = episode.proposal.action if episode.proposal is not None else None
    if episode.agent == PLAN and proposed:
        return f"{MARK} {episode.puzzle.show(proposed)}"
    moves = shortest_path(instance, walk.at)[: instance.setting.calls]
    answer = moves if episode.agent == PLAN else [f"step({move})" for move in moves]
    return f"{search_text(instance, walk.at)}\n{MARK} [{', '.join(answer)}]"


def _cells(cells: Sequence[Cell]) -> str:
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
                turns=12, team=AGENTS, calls=4, search=0, brief=True, walls=True
            ),
        ),
        expert=expert_answer,
        pieces=PIECES,
        training={
            "network": {"layers": 4, "context": 512},
            "reinforced": {"limit": 160},
            "dagger": {"steps": 500, "mixed": 1.0, "batch": 24, "warmup": 10},
        },
    ),
)
"""Plan-Path as its own game, with grids of 10 x 10."""
