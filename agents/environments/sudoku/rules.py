"""Rules for writing digits, and contradictions between them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from math import isqrt

from loopline.agents.environments.game import Refusal
from loopline.agents.environments.grid import Cell, cell_name
from loopline.agents.environments.sudoku.instance import SudokuInstance
from loopline.agents.environments.sudoku.solver import Grid

Write = tuple[int, int, int]
"""Row and column from 0, and a digit."""
Writes = tuple[Write, ...]


@cache
def units(size: int) -> tuple[tuple[Cell, ...], ...]:
    """Return the cells of every row, column and box."""
    box, span = isqrt(size), range(size)
    rows = [tuple((r, c) for c in span) for r in span]
    columns = [tuple((r, c) for r in span) for c in span]
    boxes = [
        tuple((top + r, left + c) for r in range(box) for c in range(box))
        for top in range(0, size, box)
        for left in range(0, size, box)
    ]
    return (*rows, *columns, *boxes)


def refusal(instance: SudokuInstance, write: Write) -> Refusal | None:
    """Return why a digit can't be written: `outside`, `digit` or `given`. A digit that contradicts
    others can be written: it is a mistake, and may be overwritten."""
    row, column, digit = write
    size = instance.size
    if not (0 <= row < size and 0 <= column < size):
        return Refusal("outside", cell_name((row, column)))
    if not 1 <= digit <= size:
        return Refusal("digit", f"{digit} is not from 1 to {size}")
    if instance.givens[row][column]:
        return Refusal("given", cell_name((row, column)))
    return None


def write_digit(grid: Grid, write: Write) -> Grid:
    """Return the grid with one more digit."""
    row, column, digit = write
    changed = (*grid[row][:column], digit, *grid[row][column + 1 :])
    return (*grid[:row], changed, *grid[row + 1 :])


def conflicts(grid: Grid) -> frozenset[Cell]:
    """Return the cells whose digit occurs twice in a row, column or box."""
    cells: set[Cell] = set()
    for unit in units(len(grid)):
        counts = Counter(grid[r][c] for r, c in unit if grid[r][c])
        cells |= {(r, c) for r, c in unit if counts[grid[r][c]] > 1}
    return frozenset(cells)


def satisfied_constraints(grid: Grid) -> int:
    """Return the sum, over units without a repeated digit, of their number of digits minus one, as
    in the published code."""
    total = 0
    for unit in units(len(grid)):
        digits = [grid[r][c] for r, c in unit if grid[r][c]]
        if digits and len(digits) == len(set(digits)):
            total += len(digits) - 1
    return total


def filled_cell_count(grid: Grid) -> int:
    """Return the number of cells with a digit."""
    return sum(1 for row in grid for digit in row if digit)


def candidates(grid: Grid, cell: Cell) -> tuple[int, ...]:
    """Return the digits that occur in no unit of a cell; the cell's own digit does not count."""
    peer_digits = {
        grid[r][c] for unit in units(len(grid)) if cell in unit for r, c in unit if (r, c) != cell
    }
    return tuple(digit for digit in range(1, len(grid) + 1) if digit not in peer_digits)


def next_single(grid: Grid) -> Write | None:
    """Return a blank that only one digit fits into, or a digit that fits into only one blank of a
    unit."""
    blanks = [(r, c) for r, row in enumerate(grid) for c, digit in enumerate(row) if not digit]
    fitting = {cell: candidates(grid, cell) for cell in blanks}
    for (r, c), digits in fitting.items():
        if len(digits) == 1:
            return (r, c, digits[0])
    for unit in units(len(grid)):
        places: dict[int, list[Cell]] = {}
        for cell in unit:
            for digit in fitting.get(cell, ()):
                places.setdefault(digit, []).append(cell)
        for digit, cells in places.items():
            if len(cells) == 1:
                return (*cells[0], digit)
    return None
