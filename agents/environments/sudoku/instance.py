"""A Sudoku instance: given digits with exactly one completion."""

from __future__ import annotations

from math import isqrt
from typing import Self

from pydantic import Field, model_validator

from loopline.agents.environments.puzzle_splits import Split, content_hash, split_of
from loopline.agents.environments.sudoku.solver import Grid, first_completions
from loopline.agents.environments.team_episode import Setting
from loopline.agents.records import Record, Task

ENVIRONMENT = "sudoku"
SIZES = (4, 9)


class SudokuSetting(Setting):
    """Setting of Sudoku: how a grid is shown and played."""

    listed: bool = False
    """Whether cells are listed by row and column, `r1c2=3`, instead of a drawing, and each blank
    one with the digits that its row, column and box rule out, for models too small to count
    columns."""


class SudokuInstance(Record):
    """A puzzle: the content of `records.Task.instance`, without the solution."""

    givens: Grid = Field(min_length=4, max_length=9)
    """Rows of digits; 0 means blank."""
    setting: SudokuSetting = SudokuSetting()

    @model_validator(mode="after")
    def _check_unique_solution(self) -> Self:
        size = len(self.givens)
        if size not in SIZES or any(len(row) != size for row in self.givens):
            raise ValueError("a grid has 4 rows of 4 or 9 rows of 9 digits")
        if any(not 0 <= digit <= size for row in self.givens for digit in row):
            raise ValueError(f"digits are 0 (blank) to {size}")
        if all(digit for row in self.givens for digit in row):
            raise ValueError("there is no blank cell")
        completion_count = len(first_completions(self.givens))
        if completion_count != 1:
            raise ValueError(
                "it has no completion" if not completion_count else "it has several completions"
            )
        return self

    @property
    def size(self) -> int:
        return len(self.givens)

    @property
    def box(self) -> int:
        """Side of a box."""
        return isqrt(self.size)

    @property
    def solution(self) -> Grid:
        """The completed grid."""
        return first_completions(self.givens)[0]

    @property
    def split(self) -> Split:
        """Split of the puzzle, by its complete solution: no puzzle of a test grid occurs in
        training, for any given digits. A grid with renamed digits is another grid: there are only
        288 of 4 x 4, and only two of these differ in more than names and order."""
        return split_of_solution(self.solution)

    @property
    def id(self) -> str:
        """First 16 hex digits of the SHA-256 of the given digits."""
        return content_hash(_text(self.givens))[:16]

    @property
    def task(self) -> Task:
        """The task record."""
        return Task(
            environment=ENVIRONMENT,
            instance=self.model_dump(mode="json"),
            prompt=f"Solve a Sudoku of {self.size} x {self.size}.",
        )


def split_of_solution(grid: Grid) -> Split:
    """Return the split of every puzzle with this solution."""
    return split_of(_text(grid))


def _text(grid: Grid) -> str:
    return "\n".join("".join(map(str, row)) for row in grid)
