"""Random Sudokus with exactly one completion.

A complete solution is drawn first, and it decides the split; then digits are removed as long as no
second completion appears. (Random digits on an empty grid usually have no completion: 324 of 400
such puzzles of PettingLLMs a054fb1 have none.)
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Literal, Self

from pydantic import model_validator

from loopline.agents.environments.puzzle_splits import Split, as_split, draw_puzzles, take_distinct
from loopline.agents.environments.sudoku.instance import (
    SudokuInstance,
    SudokuSetting,
    split_of_solution,
)
from loopline.agents.environments.sudoku.rules import candidates, write_digit
from loopline.agents.environments.sudoku.solver import Grid, blank_grid, completions
from loopline.agents.records import Record

_TRIES = 500
"""Maximum consecutive solutions without a puzzle; then the difficulty is considered impossible."""
_DEFAULT_BLANKS = {4: (7, 11), 9: (30, 46)}
_MOST_BLANKS = {4: 12, 9: 64}
"""Maximum number of blank cells: a unique puzzle needs 4 (of 4 x 4) or 17 (of 9 x 9) given
digits."""


class Difficulty(Record):
    """Difficulty and setting of instances."""

    size: Literal[4, 9] = 4
    blanks: tuple[int, int] | None = None
    """Minimum and maximum number of blank cells; `None` means 7 to 11 of 16, or 30 to 46 of 81."""
    setting: SudokuSetting = SudokuSetting()

    @model_validator(mode="after")
    def _check_possible(self) -> Self:
        low, high = self.range
        if not 1 <= low <= high <= _MOST_BLANKS[self.size]:
            raise ValueError(
                f"blanks must be from 1 to {_MOST_BLANKS[self.size]} of {self.size} x {self.size}, "
                f"not {low} to {high}"
            )
        return self

    @property
    def range(self) -> tuple[int, int]:
        """`blanks`, with its default."""
        return self.blanks or _DEFAULT_BLANKS[self.size]


def stream(
    split: Split | str, seed: int, difficulty: Difficulty | None = None
) -> Iterator[SudokuInstance]:
    """Yield instances of one split without end; the same seed yields the same instances. Raises
    ValueError for an unknown split, and while drawing if the difficulty allows no instance."""
    effective_difficulty, wanted = difficulty or Difficulty(), as_split(split)
    return draw_puzzles(
        "sudoku", wanted, seed, lambda rng: _draw(rng, wanted, effective_difficulty), _TRIES
    )


def instances(
    split: Split | str, seed: int, count: int, difficulty: Difficulty | None = None
) -> list[SudokuInstance]:
    """Return `count` different instances of one split. Raises ValueError."""
    return take_distinct(stream(split, seed, difficulty), count, lambda instance: instance.id)


@cache
def solutions_of_4(split: Split) -> tuple[Grid, ...]:
    """Return the 4 x 4 grids of a split, out of 288 in total."""
    return tuple(grid for grid in completions(blank_grid(4)) if split_of_solution(grid) is split)


def _draw(rng: random.Random, split: Split, difficulty: Difficulty) -> SudokuInstance | None:
    givens = _remove_digits(rng, _solution(rng, split, difficulty.size), difficulty.range)
    return None if givens is None else SudokuInstance(givens=givens, setting=difficulty.setting)


def _solution(rng: random.Random, split: Split, size: int) -> Grid:
    if size == 4:
        return rng.choice(solutions_of_4(split))
    while True:
        grid = next(completions(blank_grid(size), rng))
        if split_of_solution(grid) is split:
            return grid


def _remove_digits(rng: random.Random, solution: Grid, blanks: tuple[int, int]) -> Grid | None:
    wanted = rng.randint(*blanks)
    cells = [(r, c) for r in range(len(solution)) for c in range(len(solution))]
    rng.shuffle(cells)
    grid, away = solution, 0
    for r, c in cells:
        without = write_digit(grid, (r, c, 0))
        others = [digit for digit in candidates(without, (r, c)) if digit != solution[r][c]]
        if any(next(completions(write_digit(without, (r, c, d))), None) for d in others):
            continue
        grid, away = without, away + 1
        if away == wanted:
            return grid
    return grid if away >= blanks[0] else None
