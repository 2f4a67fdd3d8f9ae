"""A Sokoban level as text, with its boxes and player.

`#` wall, space floor, `.` target, `$` box, `@` player, `*` box on a target, `+` player on a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopline.agents.environments.game import Refusal
from loopline.agents.environments.grid import Cell, cell_name, neighbor

WALL, FLOOR, TARGET, BOX, PLAYER, BOX_ON_TARGET, PLAYER_ON_TARGET = "# .$@*+"
SIGNS = WALL + FLOOR + TARGET + BOX + PLAYER + BOX_ON_TARGET + PLAYER_ON_TARGET

Moves = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Play:
    """The movable part of a level: boxes and player."""

    player: Cell
    boxes: frozenset[Cell]


@dataclass(frozen=True, slots=True)
class Level:
    """The fixed part of a level. Cells that are not floor are walls, including those outside the
    text."""

    rows: int
    columns: int
    floor: frozenset[Cell]
    """Every cell that is not a wall, including targets."""
    targets: frozenset[Cell]

    def refusal(self, play: Play, move: str) -> Refusal | None:
        """Return why a move is illegal: `wall`, or `box` for a box that can't be pushed."""
        to = neighbor(play.player, move)
        if to not in self.floor:
            return Refusal("wall", f"{move} from {cell_name(play.player)}")
        behind = neighbor(to, move)
        if to in play.boxes and (behind not in self.floor or behind in play.boxes):
            return Refusal("box", f"{move} from {cell_name(play.player)}")
        return None

    def moved(self, play: Play, move: str) -> Play:
        """Return the state after a legal move."""
        to = neighbor(play.player, move)
        if to not in play.boxes:
            return Play(to, play.boxes)
        return Play(to, (play.boxes - {to}) | {neighbor(to, move)})

    def solved(self, play: Play) -> bool:
        """Whether every box is on a target."""
        return play.boxes == self.targets

    def is_corner(self, cell: Cell) -> bool:
        """Whether a box on this cell could never be moved again: walls above or below, and to the
        left or right."""
        above, below, left, right = (neighbor(cell, move) not in self.floor for move in "UDLR")
        return (above or below) and (left or right)

    def stuck_boxes(self, play: Play) -> frozenset[Cell]:
        """Return boxes in a corner that is not a target: the level is then unsolvable."""
        return frozenset(box for box in play.boxes - self.targets if self.is_corner(box))

    def draw(self, play: Play) -> tuple[str, ...]:
        """Return the level as text."""
        return tuple(
            "".join(self._sign((r, c), play) for c in range(self.columns)) for r in range(self.rows)
        )

    def layout(self) -> tuple[str, ...]:
        """Return only the walls and targets of the rectangle around the floor, independent of its
        position in the level."""
        rows, columns = zip(*self.floor, strict=True)
        drawn = self.draw(Play((-1, -1), frozenset()))
        return tuple(
            row[min(columns) : max(columns) + 1] for row in drawn[min(rows) : max(rows) + 1]
        )

    def _sign(self, cell: Cell, play: Play) -> str:
        if cell not in self.floor:
            return WALL
        target = cell in self.targets
        if cell in play.boxes:
            return BOX_ON_TARGET if target else BOX
        if cell == play.player:
            return PLAYER_ON_TARGET if target else PLAYER
        return TARGET if target else FLOOR


def parse_level(rows: Sequence[str]) -> tuple[Level, Play]:
    """Parse a level. Raises ValueError for rows of unequal length, unknown signs, more or less than
    one player, or different numbers of boxes and targets."""
    width = len(rows[0]) if rows else 0
    if not width or any(len(row) != width for row in rows):
        raise ValueError("all rows of a level must have the same length")
    cells_by_sign: dict[str, set[Cell]] = {sign: set() for sign in SIGNS}
    for r, row in enumerate(rows):
        for c, sign in enumerate(row):
            if sign not in cells_by_sign:
                raise ValueError(f"{sign!r} in row {r + 1} is not a sign of a level ({SIGNS!r})")
            cells_by_sign[sign].add((r, c))
    players = cells_by_sign[PLAYER] | cells_by_sign[PLAYER_ON_TARGET]
    boxes = cells_by_sign[BOX] | cells_by_sign[BOX_ON_TARGET]
    targets = cells_by_sign[TARGET] | cells_by_sign[BOX_ON_TARGET] | cells_by_sign[PLAYER_ON_TARGET]
    if len(players) != 1:
        raise ValueError(f"a level has one player, not {len(players)}")
    if not boxes or len(boxes) != len(targets):
        raise ValueError(
            f"{len(boxes)} boxes and {len(targets)} targets: the numbers must be equal"
        )
    floor = cells_by_sign[FLOOR] | players | boxes | targets
    level = Level(len(rows), width, frozenset(floor), frozenset(targets))
    return level, Play(players.pop(), frozenset(boxes))
