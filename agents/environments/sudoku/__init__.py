"""Sudoku of 4 x 4 and 9 x 9.

The modules: `solver` (completions), `instance` (the data and its split), `rules`, `puzzle` (actions
and rewards), `tools` (the tool agent's calls), `verification`, `generation`,
`players` (by hand), `lessons`, `environment` (the object).
"""

from __future__ import annotations

from loopline.agents.environments.sudoku.generation import (
    Difficulty,
    instances,
    solutions_of_4,
    stream,
)
from loopline.agents.environments.sudoku.instance import (
    ENVIRONMENT,
    SudokuInstance,
    SudokuSetting,
    split_of_solution,
)
from loopline.agents.environments.sudoku.solver import completions
from loopline.agents.environments.sudoku.verification import check_grid

__all__ = [
    "ENVIRONMENT", "Difficulty", "SudokuInstance", "SudokuSetting", "check_grid",
    "completions", "instances", "solutions_of_4", "split_of_solution", "stream",
]  # fmt: skip
