"""The rules and rewards of Sokoban."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from loopline.agents.environments.game import (
    Agent,
    Refusal,
    Rewards,
    Verdict,
    progress_parts,
    weighted_parts,
)
from loopline.agents.environments.grid import STEPS, Cell, describe_offset, manhattan, neighbor
from loopline.agents.environments.marked_answers import MOVES, read_moves
from loopline.agents.environments.sokoban.instance import SokobanInstance, SokobanSetting
from loopline.agents.environments.sokoban.level import Level, Moves, Play
from loopline.agents.environments.sokoban.solver import pushes_to_target, solve
from loopline.agents.environments.sokoban.tools import functions
from loopline.agents.environments.sokoban.verification import check_play
from loopline.agents.environments.team_episode import PLAN, Step, TeamEpisode
from loopline.agents.environments.tool_language import ToolFunction
from loopline.agents.records import JsonObject

MAX_MOVES = 400
"""Maximum moves of one answer; solutions of Boxoban levels have about 100."""


@dataclass(frozen=True)
class SokobanPuzzle:
    """Rules of Sokoban: see `loopline.agents.environments.team_episode.Puzzle`. An action is a list
    of moves. A move into a wall, or against a box that can't be pushed, is refused; the moves end
    when the level is solved."""

    instance: SokobanInstance

    @property
    def setting(self) -> SokobanSetting:
        return self.instance.setting

    @property
    def level(self) -> Level:
        return self.instance.parsed[0]

    @property
    def functions(self) -> Mapping[str, ToolFunction[tuple[Play, Moves]]]:
        return self._functions

    @cached_property
    def _functions(self) -> Mapping[str, ToolFunction[tuple[Play, Moves]]]:
        return functions(self.instance)

    def start(self) -> Play:
        return self.instance.parsed[1]

    def nothing(self) -> Moves:
        return ()

    def read(self, text: str, proposed: Moves | None) -> Moves | Refusal:
        return read_moves(text, MAX_MOVES)

    def perform(self, state: Play, action: Moves) -> Step[Play, Moves]:
        play, legal, refusals = state, 0, list[Refusal]()
        for move in action:
            if self.level.solved(play):
                break
            refused = self.level.refusal(play, move)
            if refused is not None:
                refusals.append(refused)
            else:
                play, legal = self.level.moved(play, move), legal + 1
        return Step(state, action, play, legal, len(refusals), tuple(refusals))

    def solved(self, state: Play) -> bool:
        return self.level.solved(state)

    def over(self, state: Play) -> bool:
        return self.solved(state)

    def rewards(self, agent: Agent, step: Step[Play, Moves], *, last: bool) -> Rewards:
        """Return the rewards of the published table, for B boxes, b of which are on targets:

        * team: 1 if solved, else b / B
        * plan agent: .1 format, .1 share of legal moves, .8 if it moved and no box is stuck in a
          corner
        * tool agent: .1 format, .1 share of calls that worked, .8 (P − P′) / P in 0–1, where P is
          the Manhattan distance from boxes to targets, matched at minimum cost
        * dense: −.01 for a legal and −.05 for an illegal move (or an unreadable text), +1 for each
          additional box on a target after the action, −1 for each one fewer, +10 if solved, −5 if
          the last turn ends unsolved. The published value is −.5 for a box that leaves a target,
          and it counts each push, so pushing a box on and off again pays
        * progress: 1 − p / p₀ in 0–1, where p is the sum of minimum pushes of each box on an
          otherwise empty board; −1 once a box can't reach any target. Boxes in each other's way are
          ignored
        """
        solved = float(self.solved(step.after))
        read = 0.0 if step.action is None else 1.0
        attempts = step.legal + step.illegal
        if agent == PLAN:
            legal = step.legal / attempts if attempts else 0.0
            free = float(step.legal > 0 and not self.level.stuck_boxes(step.after))
            local = {"format": (0.1, read), "legal": (0.1, legal), "no_deadlock": (0.8, free)}
        else:
            nearer = self._closer_share(step)
            local = {
                "format": (0.1, read),
                "executed": (0.1, step.worked),
                "potential": (0.8, nearer),
            }
        gained = self._boxes_on_targets(step.after) - self._boxes_on_targets(step.before)
        dense = {
            "valid": (-0.01, float(step.legal)),
            "invalid": (-0.05, float(step.illegal if step.action is not None else 1)),
            "box_on": (1.0, float(max(0, gained))),
            "box_off": (-1.0, float(max(0, -gained))),
            "solved": (10.0, solved),
            "timeout": (-5.0, float(last and not solved)),
        }
        parts = (
            *weighted_parts("team", {"boxes": (1.0, self._share(step.after))}),
            *weighted_parts("local", local),
            *weighted_parts("dense", dense),
            *weighted_parts("sparse", {"solved": (1.0, solved)}),
            *progress_parts(self._completion(step.before), self._completion(step.after), read),
        )
        return Rewards(parts, mask=read)

    def about(self) -> str:
        signs = (
            "Places are (row, column). Else the edge is wall, the inside floor."
            if self.setting.listed
            else "# wall, . target, $ box, @ player, * box on target, + player on target"
        )
        return (
            f"Sokoban, {self.level.rows} x {self.level.columns}. Push every box onto a target.\n"
            f"{signs}"
        )

    def drawing(self, state: Play) -> str:
        if self.setting.listed:
            return self._list_objects(state)
        return "\n".join(self.level.draw(state))

    def answer_form(self) -> str:
        return "U, D, L, R are moves up, down, left, right. End with #### [move, move, ...]"

    def show(self, action: Moves) -> str:
        return f"[{', '.join(action)}]"

    def as_json(self, action: Moves) -> JsonObject:
        return {"moves": list(action)}

    def items(self) -> list[str]:
        return sorted(MOVES)

    @property
    def largest(self) -> int:
        return max(self.level.rows, self.level.columns)

    def oracle(self, state: Play) -> Moves | None:
        """Return the moves with the fewest pushes. Raises `SearchLimit`."""
        return solve(self.level, state)

    def check(self, actions: tuple[Moves, ...]) -> Verdict:
        return check_play(self.instance, [move for action in actions for move in action])

    def _list_objects(self, state: Play) -> str:
        """List everything by position; for each box also its neighbouring cells and its nearest
        target."""
        level = self.level
        cells = {(r, c) for r in range(level.rows) for c in range(level.columns)}
        inside = {(r, c) for r, c in cells if 0 < r < level.rows - 1 and 0 < c < level.columns - 1}
        named = (
            ("player", (state.player,)),
            ("target", sorted(level.targets)),
            ("wall", sorted(inside - level.floor)),
            ("floor", sorted(level.floor - inside)),
        )
        lines = [", ".join(f"{name} {_place(cell)}" for name, places in named for cell in places)]
        for box in sorted(state.boxes):
            target = min(sorted(level.targets), key=lambda target: manhattan(box, target))
            sides = ", ".join(
                f"{move} {self._describe_neighbor(state, box, move)}" for move in STEPS
            )
            lines.append(f"box {_place(box)}: {sides}, target {describe_offset(box, target)}")
        return "\n".join(lines)

    def _describe_neighbor(self, state: Play, box: Cell, move: str) -> str:
        to = neighbor(box, move)
        if to not in self.level.floor:
            return "wall"
        return "box" if to in state.boxes else "free"

    def _share(self, play: Play) -> float:
        return self._boxes_on_targets(play) / len(play.boxes)

    def _boxes_on_targets(self, play: Play) -> int:
        return len(play.boxes & self.level.targets)

    def _closer_share(self, step: Step[Play, Moves]) -> float:
        before, after = self._potential(step.before), self._potential(step.after)
        return min(1.0, max(0.0, (before - after) / before))

    def _completion(self, play: Play) -> float:
        bounds = pushes_to_target(self.level)
        if not play.boxes <= bounds.keys():
            return -1.0
        whole = sum(bounds[box] for box in self.start().boxes)
        return 1.0 - min(1.0, sum(bounds[box] for box in play.boxes) / whole)

    def _potential(self, play: Play) -> int:
        """Return the minimum sum of Manhattan distances over all assignments of different targets
        to boxes."""
        boxes = sorted(play.boxes)
        return min(
            sum(manhattan(box, target) for box, target in zip(boxes, targets, strict=True))
            for targets in permutations(sorted(self.level.targets))
        )


def _place(cell: Cell) -> str:
    return f"({cell[0] + 1}, {cell[1] + 1})"


Pushing = TeamEpisode[Play, Moves]


def open_episode(instance: SokobanInstance) -> Pushing:
    """Open an episode of the instance at its initial state."""
    puzzle = SokobanPuzzle(instance)
    return Pushing(puzzle, puzzle.start())
