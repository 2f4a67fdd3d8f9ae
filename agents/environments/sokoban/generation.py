"""Random levels by reverse play: boxes start on the targets and are pulled away, so a solution
always exists. The solver then finds the number of pushes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

from pydantic import Field

from loopline.agents.environments.grid import STEPS, Cell, canonical, neighbor
from loopline.agents.environments.puzzle_splits import (
    Split,
    as_split,
    draw_puzzles,
    split_of,
    take_distinct,
)
from loopline.agents.environments.sokoban.instance import (
    MOST_SIDE,
    SokobanInstance,
    SokobanSetting,
)
from loopline.agents.environments.sokoban.level import Level, Play
from loopline.agents.environments.sokoban.solver import SearchLimit, paths_to_cells, solve
from loopline.agents.records import Record

_TRIES = 5_000
"""Maximum consecutive rooms without a level; then the difficulty is considered impossible."""


class Difficulty(Record):
    """Difficulty and setting of instances."""

    rows: int = Field(default=6, ge=6, le=MOST_SIDE)
    columns: int = Field(default=6, ge=6, le=MOST_SIDE)
    """Number of columns, including the outer walls."""
    boxes: int = Field(default=1, ge=1, le=4)
    walls: float = Field(default=0.1, ge=0, le=0.4)
    """Probability that an inner cell is a wall."""
    least_pushes: int = Field(default=2, ge=1, le=100)
    """Minimum pushes of the shortest solution."""
    most_states: int = Field(default=5_000, ge=1)
    """Maximum states that the solver may need; harder levels are left out."""
    setting: SokobanSetting = SokobanSetting()


def stream(
    split: Split | str, seed: int, difficulty: Difficulty | None = None
) -> Iterator[SokobanInstance]:
    """Yield instances of one split without end; the same seed yields the same instances. Raises
    ValueError for an unknown split, and while drawing if the difficulty allows no instance."""
    effective_difficulty, wanted = difficulty or Difficulty(), as_split(split)
    return draw_puzzles(
        "sokoban", wanted, seed, lambda rng: _draw(rng, wanted, effective_difficulty), _TRIES
    )


def instances(
    split: Split | str, seed: int, count: int, difficulty: Difficulty | None = None
) -> list[SokobanInstance]:
    """Return `count` different instances of one split. Raises ValueError."""
    return take_distinct(stream(split, seed, difficulty), count, lambda instance: instance.id)


def _draw(rng: random.Random, split: Split, difficulty: Difficulty) -> SokobanInstance | None:
    floor = _draw_room(rng, difficulty)
    if len(floor) < difficulty.boxes + 2:
        return None
    targets = frozenset(rng.sample(sorted(floor), difficulty.boxes))
    level = Level(difficulty.rows, difficulty.columns, floor, targets)
    if split_of(canonical(level.layout())) is not split:
        return None
    play = _pull_boxes(rng, level, difficulty)
    if level.solved(play) or level.stuck_boxes(play):
        return None
    try:
        moves = solve(level, play, difficulty.most_states)
    except SearchLimit:
        return None
    if moves is None:
        raise AssertionError(f"pulled apart, but without a way back: {level.draw(play)}")
    if push_count(level, play, moves) < difficulty.least_pushes:
        return None
    return SokobanInstance(level=level.draw(play), setting=difficulty.setting)


def push_count(level: Level, play: Play, moves: tuple[str, ...]) -> int:
    """Count the moves that push a box."""
    total = 0
    for move in moves:
        after = level.moved(play, move)
        total += after.boxes != play.boxes
        play = after
    return total


def _draw_room(rng: random.Random, difficulty: Difficulty) -> frozenset[Cell]:
    """Return the largest connected part of a room with random walls."""
    cells = {
        (r, c)
        for r in range(1, difficulty.rows - 1)
        for c in range(1, difficulty.columns - 1)
        if rng.random() >= difficulty.walls
    }
    pieces: list[frozenset[Cell]] = []
    while cells:
        first = min(cells)
        piece, queue = {first}, deque([first])
        while queue:
            cell = queue.popleft()
            for move in STEPS:
                neighbour = neighbor(cell, move)
                if neighbour in cells and neighbour not in piece:
                    piece.add(neighbour)
                    queue.append(neighbour)
        cells -= piece
        pieces.append(frozenset(piece))
    return max(pieces, key=len, default=frozenset())


def _pull_boxes(rng: random.Random, level: Level, difficulty: Difficulty) -> Play:
    """Pull the boxes off their targets at random, and place the player on any cell that it can
    reach."""
    free = sorted(level.floor - level.targets)
    play = Play(rng.choice(free), level.targets)
    for _ in range(rng.randint(difficulty.least_pushes, 12 * difficulty.boxes)):
        standing = paths_to_cells(level, play)
        pulls = [
            (box, to, back)
            for box in sorted(play.boxes)
            for move in STEPS
            if (to := neighbor(box, move)) in standing
            and (back := neighbor(to, move)) in level.floor
            and back not in play.boxes
        ]
        if not pulls:
            break
        box, to, back = rng.choice(pulls)
        play = Play(back, (play.boxes - {box}) | {to})
    return Play(rng.choice(sorted(paths_to_cells(level, play))), play.boxes)
