"""Cells and moves of a rectangular grid. Cells are (row, column) from 0 at the top left; texts for
models count from 1."""

from __future__ import annotations

from collections.abc import Sequence

Cell = tuple[int, int]

STEPS: dict[str, Cell] = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
MIRRORED = {"U": "D", "D": "U", "L": "R", "R": "L"}


def neighbor(cell: Cell, move: str) -> Cell:
    """Return the next cell in the direction of a move; it may lie outside the grid."""
    row, column = STEPS[move]
    return cell[0] + row, cell[1] + column


def move_between(cell: Cell, next_to_it: Cell) -> str:
    """Return the move from a cell to a cell next to it."""
    return next(move for move in STEPS if neighbor(cell, move) == next_to_it)


def cell_name(cell: Cell) -> str:
    """Return a cell in words; `row 1, column 1` is the top left."""
    return f"row {cell[0] + 1}, column {cell[1] + 1}"


def short_name(cell: Cell) -> str:
    """Return a cell as `row,column`; `1,1` is the top left."""
    return f"{cell[0] + 1},{cell[1] + 1}"


def manhattan(first: Cell, second: Cell) -> int:
    """Return the Manhattan distance |Δrow| + |Δcolumn|."""
    return abs(first[0] - second[0]) + abs(first[1] - second[1])


def describe_offset(first: Cell, second: Cell) -> str:
    """Return the offset of `second` from `first` in words: `3 up and 0 right`."""
    down, right = second[0] - first[0], second[1] - first[1]
    vertical = f"{abs(down)} {'down' if down >= 0 else 'up'}"
    return f"{vertical} and {abs(right)} {'right' if right >= 0 else 'left'}"


def canonical(rows: Sequence[str]) -> str:
    """Return the same text for a drawing and all its rotations and reflections (the smallest of the
    eight), so that no rotated copy of a test puzzle is a training puzzle."""
    images: list[tuple[str, ...]] = []
    image = tuple(rows)
    for _ in range(4):
        image = tuple("".join(column) for column in zip(*reversed(image), strict=True))
        images += [image, tuple(row[::-1] for row in image)]
    return "\n".join(min(images, key=lambda rows: (len(rows), rows)))
