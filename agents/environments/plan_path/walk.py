"""The state of a walk, and the rule for one move."""

from __future__ import annotations

from dataclasses import dataclass

from loopline.agents.environments.game import Refusal
from loopline.agents.environments.grid import Cell, cell_name, neighbor
from loopline.agents.environments.plan_path.instance import PlanPathInstance, is_free

Moves = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """State of a walk."""

    at: Cell
    moves: int = 0
    """Number of legal moves so far."""
    visited: frozenset[Cell] = frozenset()
    """Cells that the walker has left."""

    def moved(self, move: str) -> Walk:
        """Return the walk after a legal move."""
        return Walk(neighbor(self.at, move), self.moves + 1, self.visited | {self.at})


def apply_moves(
    instance: PlanPathInstance, walk: Walk, action: Moves
) -> tuple[tuple[Walk, ...], tuple[Refusal, ...]]:
    """Return every state of the walk during an answer, starting with the current one, and the
    refusals. The walk ends at the goal; under strict rules also at an illegal move, or when no move
    is left."""
    places, refusals = [walk], list[Refusal]()
    for move in action:
        here = places[-1]
        if here.at == instance.goal:
            break
        refused = refusal(instance, here, move)
        if refused is None:
            places.append(here.moved(move))
            continue
        refusals.append(refused)
        if instance.setting.rules == "strict":
            break
    return tuple(places), tuple(refusals)


def refusal(instance: PlanPathInstance, walk: Walk, move: str) -> Refusal | None:
    """Return why a move is impossible: `wall`, `outside`, or `no_moves_left`."""
    if instance.most_moves is not None and walk.moves >= instance.most_moves:
        return Refusal("no_moves_left", f"{instance.most_moves} were made")
    to = neighbor(walk.at, move)
    if is_free(instance.grid, to):
        return None
    inside = 0 <= to[0] < len(instance.grid) and 0 <= to[1] < len(instance.grid[0])
    return Refusal("wall" if inside else "outside", f"{move} from {cell_name(walk.at)}")
