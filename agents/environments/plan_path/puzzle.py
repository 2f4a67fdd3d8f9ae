"""The rules and rewards of Plan-Path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from loopline.agents.environments.game import (
    Agent,
    Refusal,
    Rewards,
    Verdict,
    progress_parts,
    weighted_parts,
)
from loopline.agents.environments.grid import (
    STEPS,
    cell_name,
    describe_offset,
    manhattan,
    neighbor,
    short_name,
)
from loopline.agents.environments.marked_answers import MOVES, read_moves
from loopline.agents.environments.plan_path.instance import (
    WALL,
    PlanPathInstance,
    PlanPathSetting,
    is_free,
    shortest_path,
)
from loopline.agents.environments.plan_path.tools import functions
from loopline.agents.environments.plan_path.verification import check_walk
from loopline.agents.environments.plan_path.walk import Moves, Walk, apply_moves
from loopline.agents.environments.team_episode import PLAN, Step, TeamEpisode
from loopline.agents.environments.tool_language import ToolFunction
from loopline.agents.records import JsonObject

GAMMA = 0.99
"""Discount of the tool agent's shaping term, as published."""


@dataclass(frozen=True)
class PlanPathPuzzle:
    """Rules of Plan-Path: see `loopline.agents.environments.team_episode.Puzzle`. An action is a
    list of moves. A move into a wall or out of the grid has no effect; under strict rules it also
    ends the answer. The walk ends at the goal, or when the episode has no moves left."""

    instance: PlanPathInstance

    @property
    def setting(self) -> PlanPathSetting:
        return self.instance.setting

    @property
    def functions(self) -> Mapping[str, ToolFunction[tuple[Walk, Moves]]]:
        return self._functions

    @cached_property
    def _functions(self) -> Mapping[str, ToolFunction[tuple[Walk, Moves]]]:
        return functions(self.instance)

    def start(self) -> Walk:
        return Walk(self.instance.start)

    def nothing(self) -> Moves:
        return ()

    def read(self, text: str, proposed: Moves | None) -> Moves | Refusal:
        return read_moves(text, self.instance.longest_answer)

    def perform(self, state: Walk, action: Moves) -> Step[Walk, Moves]:
        places, refusals = apply_moves(self.instance, state, action)
        return Step(state, action, places[-1], len(places) - 1, len(refusals), refusals)

    def solved(self, state: Walk) -> bool:
        return state.at == self.instance.goal

    def over(self, state: Walk) -> bool:
        most = self.instance.most_moves
        return self.solved(state) or (most is not None and state.moves >= most)

    def rewards(self, agent: Agent, step: Step[Walk, Moves], *, last: bool) -> Rewards:
        """Return the rewards of the published table. Distances d are walking distances, and Φ =
        −Manhattan:

        * team: 1 at the goal, else max(0, Δd / d₀)
        * plan agent: .1 format, .1 share of legal moves, .8 share of moves on a shortest path
        * tool agent: .1 format, .1 share of calls that worked, .8 shaping (.99Φ′ − Φ) / −Φ in 0–1
        * dense: −.01 for a legal and −.10 for an illegal move (or an unreadable text), +1 at the
          goal, +.5 if the whole walk is a shortest one, and Φ′ − Φ for the action. The published
          term is .99Φ′ − Φ for each legal move, whose sum grows with every step back and forth
        * progress: 1 − d / d₀, which also falls on the way back, where the published rewards stop
          at 0
        """
        read = 0.0 if step.action is None else 1.0
        attempts = step.legal + step.illegal
        solved = float(self.solved(step.after))
        legal = step.legal / attempts if attempts else 0.0
        if agent == PLAN:
            nearer = self._closer_move_count(step) / attempts if attempts else 0.0
            local = {"format": (0.1, read), "legal": (0.1, legal), "shortest": (0.8, nearer)}
        else:
            shaping = self._shaping_share(step) if step.legal else 0.0
            worked = step.worked
            local = {"format": (0.1, read), "executed": (0.1, worked), "shaping": (0.8, shaping)}
        best = solved and step.after.moves == self.instance.shortest
        dense = {
            "valid": (-0.01, float(step.legal)),
            "invalid": (-0.10, float(step.illegal if step.action is not None else 1)),
            "goal": (1.0, solved),
            "shortest": (0.5, float(best)),
            "shaping": (1.0, float(self._phi(step.after) - self._phi(step.before))),
        }
        parts = (
            *weighted_parts("team", {"progress": (1.0, self._progress(step))}),
            *weighted_parts("local", local),
            *weighted_parts("dense", dense),
            *weighted_parts("sparse", {"solved": (1.0, solved)}),
            *progress_parts(self._completion(step.before), self._completion(step.after), read),
        )
        return Rewards(parts, mask=read)

    def about(self) -> str:
        rows, columns = len(self.instance.grid), len(self.instance.grid[0])
        signs = "" if self.setting.listed else " # is blocked."
        if self.setting.walls:
            signs = " A cell is written row,column; 1,1 is the top left."
        strict = " An answer ends at its first move that is not possible."
        rules = "" if self.instance.most_moves is None else strict
        return f"Plan-Path, {rows} x {columns}. Walk from A to G.{signs}{rules}"

    def drawing(self, state: Walk) -> str:
        goal = self.instance.goal
        if self.setting.walls:
            lines = [self._walls, f"A: {short_name(state.at)}. G: {short_name(goal)}."]
        else:
            words = self.setting.listed
            lines = [self._describe_neighbors(state)] if words else self._window(state)
            lines.append(f"A: {cell_name(state.at)}. G: {cell_name(goal)}.")
            lines.append(f"G is {describe_offset(state.at, goal)}.")
        if self.instance.most_moves is not None and not self.setting.brief:
            lines.append(f"Moves left: {self.instance.most_moves - state.moves}.")
        return "\n".join(lines)

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
        return 1

    def oracle(self, state: Walk) -> Moves | None:
        """Return a shortest path; None if it is longer than the moves left."""
        most, path = self.instance.most_moves, shortest_path(self.instance, state.at)
        return path if most is None or state.moves + len(path) <= most else None

    def check(self, actions: tuple[Moves, ...]) -> Verdict:
        return check_walk(self.instance, actions)

    def _window(self, state: Walk) -> list[str]:
        grid, reach = self.instance.grid, self.setting.view
        marks = dict.fromkeys(state.visited, "*") if self.setting.marks else {}
        marks |= {self.instance.goal: "G", state.at: "A"}
        if reach is None:
            rows, columns = range(len(grid)), range(len(grid[0]))
        else:
            rows = range(state.at[0] - reach, state.at[0] + reach + 1)
            columns = range(state.at[1] - reach, state.at[1] + reach + 1)
        return [
            "".join(
                marks.get((r, c), grid[r][c])
                if 0 <= r < len(grid) and 0 <= c < len(grid[0])
                else WALL
                for c in columns
            )
            for r in rows
        ]

    @cached_property
    def _walls(self) -> str:
        walls = [
            short_name((r, c))
            for r, row in enumerate(self.instance.grid)
            for c, cell in enumerate(row)
            if cell == WALL
        ]
        return f"Walls: {' '.join(walls) or 'none'}"

    def _describe_neighbors(self, state: Walk) -> str:
        """Describe the four cells next to the walker."""
        return ", ".join(f"{move} {self._describe_neighbor(state, move)}" for move in STEPS)

    def _describe_neighbor(self, state: Walk, move: str) -> str:
        cell = neighbor(state.at, move)
        if not is_free(self.instance.grid, cell):
            return "wall"
        return "visited" if self.setting.marks and cell in state.visited else "free"

    def _progress(self, step: Step[Walk, Moves]) -> float:
        if self.solved(step.after):
            return 1.0
        distances = self.instance.distances
        gained = distances[step.before.at] - distances[step.after.at]
        return max(0.0, gained / self.instance.shortest)

    def _completion(self, walk: Walk) -> float:
        return 1.0 - self.instance.distances[walk.at] / self.instance.shortest

    def _closer_move_count(self, step: Step[Walk, Moves]) -> int:
        """Count the moves that lead one step closer to the goal."""
        places, _ = apply_moves(self.instance, step.before, step.action or ())
        distances = [self.instance.distances[place.at] for place in places]
        steps = Counter(b - a for a, b in pairwise(distances))
        return steps[-1]

    def _phi(self, walk: Walk) -> int:
        return -manhattan(walk.at, self.instance.goal)

    def _shaping_share(self, step: Step[Walk, Moves]) -> float:
        before, after = self._phi(step.before), self._phi(step.after)
        return min(1.0, max(0.0, (GAMMA * after - before) / -before))


Walking = TeamEpisode[Walk, Moves]


def open_episode(instance: PlanPathInstance) -> Walking:
    """Open an episode of the instance at its initial state."""
    puzzle = PlanPathPuzzle(instance)
    return Walking(puzzle, puzzle.start())
