"""Finds the completions of a Sudoku: depth-first, always at the cell with the fewest candidates."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from math import isqrt

Grid = tuple[tuple[int, ...], ...]
"""Rows of digits; 0 means blank."""


MAX_NODES = 100_000
"""Maximum number of digits tried before a puzzle is too hard to check: some seconds. Generated
puzzles need at most a few hundred."""


class SearchLimit(ValueError):
    """The search was given up: the number of completions is unknown."""


def completions(
    grid: Grid, rng: random.Random | None = None, most: int | None = None
) -> Iterator[Grid]:
    """Yield every completion of a 4 x 4 or 9 x 9 grid once; with `rng`, in a random order.

    Raises `SearchLimit` once more than `most` digits were tried; `None` means no limit.
    """
    size = len(grid)
    box = isqrt(size)
    every = (1 << size) - 1
    rows, columns, boxes = [every] * size, [every] * size, [every] * size
    cells = [list(row) for row in grid]
    blanks: list[tuple[int, int, int]] = []
    steps = 0
    for r, row in enumerate(grid):
        for c, digit in enumerate(row):
            b = r // box * box + c // box
            if not digit:
                blanks.append((r, c, b))
                continue
            bit = 1 << (digit - 1)
            if not rows[r] & columns[c] & boxes[b] & bit:
                return
            rows[r] ^= bit
            columns[c] ^= bit
            boxes[b] ^= bit

    def descend() -> Iterator[Grid]:
        nonlocal steps
        if not blanks:
            yield tuple(map(tuple, cells))
            return
        fewest, place = size + 1, 0
        for index, (r, c, b) in enumerate(blanks):
            count = (rows[r] & columns[c] & boxes[b]).bit_count()
            if count < fewest:
                fewest, place = count, index
                if count < 2:
                    break
        if not fewest:
            return
        blanks[place], blanks[-1] = blanks[-1], blanks[place]
        r, c, b = blanks.pop()
        free = rows[r] & columns[c] & boxes[b]
        digits = [digit for digit in range(1, size + 1) if free >> (digit - 1) & 1]
        if rng is not None:
            rng.shuffle(digits)
        for digit in digits:
            steps += 1
            if most is not None and steps > most:
                raise SearchLimit(f"the number of completions is unknown after {most} steps")
            bit = 1 << (digit - 1)
            rows[r] ^= bit
            columns[c] ^= bit
            boxes[b] ^= bit
            cells[r][c] = digit
            yield from descend()
            rows[r] ^= bit
            columns[c] ^= bit
            boxes[b] ^= bit
        cells[r][c] = 0
        blanks.append((r, c, b))
        blanks[place], blanks[-1] = blanks[-1], blanks[place]

    yield from descend()


@lru_cache(maxsize=4096)
def first_completions(grid: Grid) -> tuple[Grid, ...]:
    """Return up to two completions: two mean that the completion is not unique. Raises
    `SearchLimit`."""
    solutions: list[Grid] = []
    for completion in completions(grid, most=MAX_NODES):
        solutions.append(completion)
        if len(solutions) == 2:
            break
    return tuple(solutions)


def blank_grid(size: int) -> Grid:
    """Return a grid without digits."""
    return ((0,) * size,) * size
