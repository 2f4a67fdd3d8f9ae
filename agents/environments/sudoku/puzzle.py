"""The rules and rewards of Sudoku."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from loopline.agents.environments.game import (
    Agent,
    Refusal,
    Rewards,
    Verdict,
    progress_parts,
    weighted_parts,
)
from loopline.agents.environments.marked_answers import read_rows
from loopline.agents.environments.sudoku.instance import SudokuInstance, SudokuSetting
from loopline.agents.environments.sudoku.rules import (
    Writes,
    candidates,
    conflicts,
    filled_cell_count,
    refusal,
    satisfied_constraints,
    write_digit,
)
from loopline.agents.environments.sudoku.solver import Grid
from loopline.agents.environments.sudoku.tools import format_writes, functions
from loopline.agents.environments.sudoku.verification import check_writes
from loopline.agents.environments.team_episode import PLAN, Step, TeamEpisode
from loopline.agents.environments.tool_language import ToolFunction
from loopline.agents.records import JsonObject


@dataclass(frozen=True)
class SudokuPuzzle:
    """Rules of Sudoku: see `loopline.agents.environments.team_episode.Puzzle`. An action writes
    digits into cells, one after another; a digit outside the grid, or on a given digit, is refused.
    A whole grid is an action, too: it writes every cell that differs from the given digits."""

    instance: SudokuInstance

    @property
    def setting(self) -> SudokuSetting:
        return self.instance.setting

    @property
    def functions(self) -> Mapping[str, ToolFunction[tuple[Grid, Writes]]]:
        return self._functions

    @cached_property
    def _functions(self) -> Mapping[str, ToolFunction[tuple[Grid, Writes]]]:
        return functions(self.instance)

    def start(self) -> Grid:
        return self.instance.givens

    def nothing(self) -> Writes:
        return ()

    def read(self, text: str, proposed: Writes | None) -> Writes | Refusal:
        """Parse a grid or a list of (row, column, digit). A grid that only repeats the given digits
        is refused as `empty`, and any other shape as `wrong_shape`."""
        rows = read_rows(text)
        if isinstance(rows, Refusal):
            return rows
        size = self.instance.size
        if all(len(row) == 3 for row in rows):
            if len(rows) > size * size:
                return Refusal("too_long", f"{len(rows)} cells, at most {size * size}")
            return tuple((r - 1, c - 1, digit) for r, c, digit in rows)
        if len(rows) != size or any(len(row) != size for row in rows):
            return Refusal("wrong_shape", f"neither {size} x {size} nor (row, column, digit)")
        writes = tuple(
            (r, c, digit)
            for r, row in enumerate(rows)
            for c, digit in enumerate(row)
            if digit != self.instance.givens[r][c]
        )
        return writes or Refusal("empty", "the grid only repeats what is given")

    def perform(self, state: Grid, action: Writes) -> Step[Grid, Writes]:
        grid, legal, refusals = state, 0, list[Refusal]()
        for write in action:
            refused = refusal(self.instance, write)
            if refused is not None:
                refusals.append(refused)
            else:
                grid, legal = write_digit(grid, write), legal + 1
        return Step(state, action, grid, legal, len(refusals), tuple(refusals))

    def solved(self, state: Grid) -> bool:
        return state == self.instance.solution

    def over(self, state: Grid) -> bool:
        return self.solved(state)

    def rewards(self, agent: Agent, step: Step[Grid, Writes], *, last: bool) -> Rewards:
        """Return the rewards of the published table:

        * team: 1 if solved
        * plan agent: .1 format, .1 share of legal writes, .8 newly filled / N². A digit that
          contradicts another one fills nothing; the published code refuses it
        * tool agent: .1 format, .1 share of calls that worked, .8 share of the writable proposed
          digits that contradict no other digit
        * dense: 2 − .01 if solved, else .5 Δfilled (share of all cells) + .02 Δconstraints; −.5 if
          anything was illegal
        * progress: share of the cells to fill with the solution's digit, minus the share with
          another
        """
        before, after, size = step.before, step.after, self.instance.size
        solved = float(self.solved(after))
        read = 0.0 if step.action is None else 1.0
        attempts = step.legal + step.illegal
        clashing = conflicts(after)
        wrote = {write[:2] for write in step.action or () if refusal(self.instance, write) is None}
        if agent == PLAN:
            new = [(r, c) for r, c in wrote - clashing if not before[r][c] and after[r][c]]
            legal = step.legal / attempts if attempts else 0.0
            local = {
                "format": (0.1, read),
                "legal": (0.1, legal),
                "filled": (0.8, len(new) / size**2),
            }
        else:
            sane = len(wrote - clashing) / len(wrote) if wrote else 0.0
            local = {"format": (0.1, read), "executed": (0.1, step.worked), "sanity": (0.8, sane)}
        invalid = step.illegal > 0 or step.action is None
        dense = {
            "solved": (2.0, solved),
            "step": (-0.01, solved),
            "filled": (
                0.5,
                0.0 if solved else (filled_cell_count(after) - filled_cell_count(before)) / size**2,
            ),
            "constraints": (
                0.02,
                0.0
                if solved
                else float(satisfied_constraints(after) - satisfied_constraints(before)),
            ),
            "invalid": (-0.5, float(invalid)),
        }
        parts = (
            *weighted_parts("team", {"solved": (1.0, solved)}),
            *weighted_parts("local", local),
            *weighted_parts("dense", dense),
            *weighted_parts("sparse", {"solved": (1.0, solved)}),
            *progress_parts(self._completion(before), self._completion(after), read),
        )
        return Rewards(parts, mask=read)

    def about(self) -> str:
        size, box = self.instance.size, self.instance.box
        return (
            f"Sudoku, {size} x {size}. Every row, column and {box} x {box} box has 1 to {size}, "
            "each once."
        )

    def drawing(self, state: Grid) -> str:
        if self.setting.listed:
            return self._list_cells(state)
        lines = ["Given:", *_rows(self.instance.givens)]
        if state != self.instance.givens:
            lines += ["Now:", *_rows(state)]
        return "\n".join(lines)

    def answer_form(self) -> str:
        return (
            "End with the whole grid, #### [[digit, ...], ...], or with cells, "
            "#### [(row, column, digit), ...]"
        )

    def show(self, action: Writes) -> str:
        return f"[{format_writes(action)}]"

    def as_json(self, action: Writes) -> JsonObject:
        return {"cells": [[r + 1, c + 1, digit] for r, c, digit in action]}

    def items(self) -> list[str]:
        digits = range(1, self.instance.size + 1)
        return [f"({r}, {c}, {digit})" for r, c, digit in product(digits, repeat=3)]

    @property
    def largest(self) -> int:
        return self.instance.size

    def oracle(self, state: Grid) -> Writes:
        """Return the solution's digits that are not yet written."""
        return tuple(
            (r, c, digit)
            for r, row in enumerate(self.instance.solution)
            for c, digit in enumerate(row)
            if state[r][c] != digit
        )

    def _completion(self, state: Grid) -> float:
        """Return Φ. A wrong digit costs the same as a right one is worth: at half the cost, teams
        learn to fill the grid with guesses."""
        right = wrong = to_fill = 0
        rows = zip(self.instance.givens, state, self.instance.solution, strict=True)
        for givens, digits, solved in rows:
            for clue, digit, true in zip(givens, digits, solved, strict=True):
                to_fill += not clue
                right += not clue and digit == true
                wrong += not clue and digit not in (0, true)
        return (right - wrong) / to_fill

    def _list_cells(self, state: Grid) -> str:
        """List the cells; blank ones come last, in the form of an answer, each with the digits that
        its row, column and box rule out."""
        lists: dict[str, list[str]] = {"Given:": [], "Written:": []}
        blanks: list[str] = []
        for r, row in enumerate(state):
            for c, digit in enumerate(row):
                cell = f"r{r + 1}c{c + 1}"
                if digit:
                    clue = self.instance.givens[r][c]
                    lists["Given:" if clue else "Written:"].append(f"{cell}={digit}")
                else:
                    fitting = candidates(state, (r, c))
                    others = [d for d in range(1, self.instance.size + 1) if d not in fitting]
                    constraint = f"not {' '.join(map(str, others))}" if others else "any"
                    blanks.append(f"({r + 1}, {c + 1}, {constraint})")
        filled_in = [" ".join([name, *cells]) for name, cells in lists.items() if cells]
        return "\n".join((*filled_in, *blanks))

    def check(self, actions: tuple[Writes, ...]) -> Verdict:
        return check_writes(self.instance, [write for action in actions for write in action])


def _rows(grid: Grid) -> list[str]:
    return [" ".join(str(digit) if digit else "." for digit in row) for row in grid]


Filling = TeamEpisode[Grid, Writes]


def open_episode(instance: SudokuInstance) -> Filling:
    """Open an episode of the instance at its initial state."""
    puzzle = SudokuPuzzle(instance)
    return Filling(puzzle, puzzle.start())
