"""The state of a walk, and the rule for one move."""

from __future__ import annotations

from dataclasses import dataclass

from agents.environments.game import Refusal
from agents.environments.grid import Cell, beside, said
from agents.environments.plan_path.instance import PlanPathInstance, is_free

Moves = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """Where the walk has led."""

    at: Cell
    moves: int = 0
    """Legal moves so far."""
    visited: frozenset[Cell] = frozenset()
    """Cells that were left."""

    def moved(self, move: str) -> Walk:
        """After a move that is legal."""
        return Walk(beside(self.at, move), self.moves + 1, self.visited | {self.at})


def refusal(instance: PlanPathInstance, walk: Walk, move: str) -> Refusal | None:
    """Why a move is not legal: `wall` or `outside`."""
    to = beside(walk.at, move)
    if is_free(instance.grid, to):
        return None
    inside = 0 <= to[0] < len(instance.grid) and 0 <= to[1] < len(instance.grid[0])
    return Refusal("wall" if inside else "outside", f"{move} from {said(walk.at)}")
