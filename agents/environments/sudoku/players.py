"""Hand-written players of Sudoku, one digit after another."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain

from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.sudoku.instance import SudokuInstance
from loopline.agents.environments.sudoku.puzzle import open_episode
from loopline.agents.environments.sudoku.rules import Write, candidates, next_single, write_digit
from loopline.agents.environments.sudoku.solver import Grid
from loopline.agents.environments.sudoku.tools import format_writes
from loopline.agents.environments.team_episode import PLAN, played_by

Player = Callable[[Grid, random.Random], Write | None]
"""Chooses the next digit; None if it has none."""


def blanks(grid: Grid) -> list[tuple[int, int]]:
    """Return the cells without a digit."""
    return [(r, c) for r, row in enumerate(grid) for c, digit in enumerate(row) if not digit]


def random_legal(grid: Grid, rng: random.Random) -> Write | None:
    """Return a random digit that fits so far, for a random blank that one fits into."""
    every = chain.from_iterable(
        [(*cell, digit) for digit in candidates(grid, cell)] for cell in blanks(grid)
    )
    fitting = list(every)
    return rng.choice(fitting) if fitting else None


def naked_single(grid: Grid, rng: random.Random) -> Write | None:
    """Return the first blank that only one digit fits into."""
    singles = ((*cell, *candidates(grid, cell)) for cell in blanks(grid))
    return next((single for single in singles if len(single) == 3), None)


def any_single(grid: Grid, rng: random.Random) -> Write | None:
    """Return the first blank that only one digit fits into, or a digit that fits into only one
    blank of a row, column or box."""
    return next_single(grid)


PLAYERS: dict[str, Player] = {
    "random": random_legal,
    "naked singles": naked_single,
    "naked and hidden singles": any_single,
}


def player_solves(player: Player, instance: SudokuInstance, seed: int = 0) -> bool:
    """Whether a hand-written player fills the grid correctly. It starts over in every turn, because
    it knows only that its earlier answers did not solve the grid."""
    episode, rng = open_episode(played_by(PLAN, instance)), random.Random(instance.id)
    while not episode.done:
        grid, writes = instance.givens, list[Write]()
        while (write := player(grid, rng)) is not None:
            grid = write_digit(grid, write)
            writes.append(write)
        episode.apply(PLAN, f"{MARK} [{format_writes(tuple(writes))}]")
    return episode.verify().solved


def solves_by_search(instance: SudokuInstance) -> bool:
    """Whether the demonstration, found by searching for the completion, solves the instance."""
    episode = open_episode(played_by(PLAN, instance))
    episode.apply(PLAN, episode.demonstration() or "")
    return episode.verify().solved
