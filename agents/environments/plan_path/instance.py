"""A Plan-Path instance: a grid with obstacles, a start, a goal."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Literal, Self

from pydantic import Field, model_validator

from loopline.agents.environments.grid import STEPS, Cell, canonical, neighbor
from loopline.agents.environments.puzzle_splits import Split, content_hash, split_of
from loopline.agents.environments.team_episode import Setting
from loopline.agents.records import Record, Task

ENVIRONMENT = "plan_path"
Rules = Literal["strict", "paper"]
LEAST_SIDE, MOST_SIDE = 5, 20
WALL, FREE = "#", "."


class PlanPathSetting(Setting):
    """Setting of Plan-Path: how a grid is shown and played."""

    search: int = Field(default=2, ge=0, le=400)
    """Number of moves that a tool looks ahead; with 5, the tool alone solves nine of ten grids."""
    view: int | None = Field(default=None, ge=1, le=MOST_SIDE)
    """Cells visible in each direction (3 is a window of 7 x 7); `None` means the whole grid."""
    marks: bool = False
    """Whether visited cells are shown: the memory that a policy of single moves lacks."""
    listed: bool = False
    """Whether the cells next to the walker are described in words instead of a drawing, for models
    too small to count columns. Only the tool agent can look farther."""
    walls: bool = False
    """Whether the whole grid is given as a list of its walls instead of a drawing."""
    rules: Rules = "strict"
    """`strict`: an answer ends at its first illegal move, and an episode has a limited number of
    moves (`detour`). `paper`, as in PettingLLMs: illegal moves are skipped, and only turns and the
    answer's length limit the moves; four fixed answers then solve 70 % of 10 x 10 grids blindly."""
    detour: float = Field(default=2.0, ge=1, le=100)
    """Maximum moves of an episode under strict rules, as a multiple of the shortest path."""

    @model_validator(mode="after")
    def _check_one_view(self) -> Self:
        if self.listed and self.walls:
            raise ValueError("listed and walls are two ways to show a grid; set only one of them")
        return self


class PlanPathInstance(Record):
    """A puzzle: the content of `records.Task.instance`."""

    grid: tuple[str, ...] = Field(min_length=LEAST_SIDE, max_length=MOST_SIDE)
    start: Cell
    goal: Cell
    setting: PlanPathSetting = PlanPathSetting()

    @model_validator(mode="after")
    def _check_solvable(self) -> Self:
        width = len(self.grid[0])
        if not LEAST_SIDE <= width <= MOST_SIDE or any(len(row) != width for row in self.grid):
            raise ValueError(f"the rows must all have the same {LEAST_SIDE} to {MOST_SIDE} cells")
        if any(cell not in WALL + FREE for row in self.grid for cell in row):
            raise ValueError("a grid consists of . and #")
        for name, cell in (("start", self.start), ("goal", self.goal)):
            if not is_free(self.grid, cell):
                raise ValueError(f"{name} {cell} is not a free cell of the grid")
        if self.start == self.goal:
            raise ValueError("start and goal are the same cell")
        if self.start not in self.distances:
            raise ValueError("there is no path from the start to the goal")
        return self

    @cached_property
    def distances(self) -> Mapping[Cell, int]:
        """Number of moves to the goal from every cell from which it can be reached."""
        return distances_to(self.grid, self.goal)

    @property
    def shortest(self) -> int:
        """Number of moves from start to goal."""
        return self.distances[self.start]

    @property
    def longest_answer(self) -> int:
        """Maximum moves of one answer: the number of cells."""
        return len(self.grid) * len(self.grid[0])

    @property
    def most_moves(self) -> int | None:
        """Maximum legal moves of an episode; None means no limit."""
        if self.setting.rules == "paper":
            return None
        return math.ceil(self.setting.detour * self.shortest)

    @property
    def layout(self) -> str:
        """Obstacles up to rotation and reflection, which decide the split."""
        return canonical(self.grid)

    @property
    def split(self) -> Split:
        return split_of(self.layout)

    @property
    def id(self) -> str:
        """First 16 hex digits of the SHA-256 of grid, start and goal."""
        return content_hash("\n".join((*self.grid, str(self.start), str(self.goal))))[:16]

    @property
    def task(self) -> Task:
        """The task record."""
        rows, columns = len(self.grid), len(self.grid[0])
        return Task(
            environment=ENVIRONMENT,
            instance=self.model_dump(mode="json"),
            prompt=f"Find a way through a grid of {rows} x {columns} cells.",
        )


def is_free(grid: tuple[str, ...], cell: Cell) -> bool:
    """Whether a walker can be on this cell."""
    row, column = cell
    return 0 <= row < len(grid) and 0 <= column < len(grid[0]) and grid[row][column] == FREE


@lru_cache(maxsize=4096)
def distances_to(grid: tuple[str, ...], goal: Cell) -> Mapping[Cell, int]:
    """Return breadth-first distances to `goal`; this is the environment's oracle."""
    distances = {goal: 0}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for move in STEPS:
            neighbour = neighbor(cell, move)
            if neighbour not in distances and is_free(grid, neighbour):
                distances[neighbour] = distances[cell] + 1
                queue.append(neighbour)
    return distances


def shortest_path(instance: PlanPathInstance, start: Cell) -> tuple[str, ...]:
    """Return the moves of one shortest path to the goal; ties are broken in the order U, D, L, R.

    Raises ValueError for a cell from which the goal can't be reached.
    """
    distances = instance.distances
    if start not in distances:
        raise ValueError(f"there is no path from {start} to the goal")
    moves: list[str] = []
    while start != instance.goal:
        nearer = distances[start] - 1
        move = next(move for move in STEPS if distances.get(neighbor(start, move)) == nearer)
        start = neighbor(start, move)
        moves.append(move)
    return tuple(moves)
