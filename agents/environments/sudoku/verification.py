"""Verifies that a grid solves a Sudoku: an independent implementation of the rules, which shares no
code with the episode that it judges.

The given digits are part of the question. A checker that ignores them accepts any valid grid as a
solution, even the example in its own prompt (as PettingLLMs a054fb1 does).
"""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.environments.game import Verdict
from loopline.agents.environments.sudoku.instance import SudokuInstance


def check_grid(instance: SudokuInstance, grid: Sequence[Sequence[int]]) -> Verdict:
    """Check that every given digit is kept, and that every row, column and box has each digit
    once."""
    size, box = instance.size, instance.box
    if len(grid) != size or any(len(row) != size for row in grid):
        return Verdict(f"the grid is not {size} x {size}")
    for r in range(size):
        for c in range(size):
            if instance.givens[r][c] not in (0, grid[r][c]):
                return Verdict(f"the given digit at row {r + 1}, column {c + 1} was changed")
    blanks = sum(list(row).count(0) for row in grid)
    if blanks:
        return Verdict(f"{blanks} cells are blank")
    right = list(range(1, size + 1))
    for i in range(size):
        if sorted(grid[i]) != right:
            return Verdict(f"row {i + 1} has not every digit once")
        if sorted(row[i] for row in grid) != right:
            return Verdict(f"column {i + 1} has not every digit once")
        top, left = i // box * box, i % box * box
        if sorted(d for row in grid[top : top + box] for d in row[left : left + box]) != right:
            return Verdict(f"box {i + 1} has not every digit once")
    return Verdict()


def check_writes(instance: SudokuInstance, writes: Sequence[tuple[int, int, int]]) -> Verdict:
    """Repeat the writes on the given digits, which can't be overwritten, then check like
    `check_grid`."""
    cells = [list(row) for row in instance.givens]
    for r, c, digit in writes:
        inside = r in range(instance.size) and c in range(instance.size)
        if inside and digit in range(1, instance.size + 1) and instance.givens[r][c] == 0:
            cells[r][c] = digit
    return check_grid(instance, cells)
