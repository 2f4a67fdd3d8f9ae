"""Solves a level with the fewest pushes: A* over pushes.

Two states are the same if their boxes are, and if the player can walk from one position to the
other. The bound is the sum over boxes of the pushes to the nearest target on a board without other
boxes; a box that can reach no target makes the state dead.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import count

from loopline.agents.environments.grid import MIRRORED, STEPS, Cell, neighbor
from loopline.agents.environments.sokoban.level import Level, Moves, Play

MAX_STATES = 100_000
"""Maximum states: about a minute of search on the largest board."""

_Key = tuple[Cell, frozenset[Cell]]
_Push = tuple[Cell, str]
"""The box and its direction."""


class SearchLimit(Exception):
    """The search was given up: it is unknown whether a solution exists."""


def walkable_cells(level: Level, play: Play) -> set[Cell]:
    """Return every cell that the player can reach without a push."""
    reachable_cells = {play.player}
    frontier = [play.player]
    while frontier:
        cell = frontier.pop()
        for move in STEPS:
            neighbour = neighbor(cell, move)
            if (
                neighbour not in reachable_cells
                and neighbour in level.floor
                and neighbour not in play.boxes
            ):
                reachable_cells.add(neighbour)
                frontier.append(neighbour)
    return reachable_cells


def paths_to_cells(level: Level, play: Play) -> dict[Cell, Moves]:
    """Return the same cells, each with the shortest path."""
    paths: dict[Cell, Moves] = {play.player: ()}
    queue = deque([play.player])
    while queue:
        cell = queue.popleft()
        for move in STEPS:
            neighbour = neighbor(cell, move)
            if neighbour not in paths and neighbour in level.floor and neighbour not in play.boxes:
                paths[neighbour] = (*paths[cell], move)
                queue.append(neighbour)
    return paths


@lru_cache(maxsize=1024)
def pushes_to_target(level: Level) -> Mapping[Cell, int]:
    """Return the fewest pushes to the nearest target for a single box, by cell; dead cells are left
    out."""
    distances = dict.fromkeys(level.targets, 0)
    queue = deque(sorted(level.targets))
    while queue:
        cell = queue.popleft()
        for move in STEPS:
            # A push in the direction of `move` ended here: the box came from `box`, and the player
            # from behind it.
            box = neighbor(cell, MIRRORED[move])
            behind = neighbor(box, MIRRORED[move])
            if box in level.floor and behind in level.floor and box not in distances:
                distances[box] = distances[cell] + 1
                queue.append(box)
    return distances


def solve(level: Level, play: Play, most_states: int = MAX_STATES) -> Moves | None:
    """Return the moves of a solution with the fewest pushes; `None` if there is none. Raises
    `SearchLimit` after `most_states` states."""
    bounds = pushes_to_target(level)
    if any(box not in bounds for box in play.boxes):
        return None
    order = count()
    start = _key(level, play)
    predecessors: dict[_Key, tuple[_Key, _Push] | None] = {start: None}
    cost = {start: 0}
    queue = [(sum(bounds[box] for box in play.boxes), next(order), start)]
    closed: set[_Key] = set()
    while queue:
        _, _, key = heapq.heappop(queue)
        if key in closed:
            continue
        closed.add(key)
        here = Play(*key)
        if level.solved(here):
            return _moves(level, play, _push_path(predecessors, key))
        if len(closed) > most_states:
            raise SearchLimit(f"no solution among {most_states} states")
        for push, after in successors(level, here):
            if push[0] not in bounds or neighbor(*push) not in bounds:
                continue
            next_key = _key(level, after)
            if next_key not in closed and cost[key] + 1 < cost.get(next_key, 1 << 30):
                cost[next_key] = cost[key] + 1
                predecessors[next_key] = (key, push)
                bound = cost[next_key] + sum(bounds[box] for box in after.boxes)
                heapq.heappush(queue, (bound, next(order), next_key))
    return None


def successors(level: Level, play: Play) -> Iterator[tuple[_Push, Play]]:
    """Yield every possible push and its resulting state."""
    cells = walkable_cells(level, play)
    for box in sorted(play.boxes):
        for move in STEPS:
            to = neighbor(box, move)
            free = to in level.floor and to not in play.boxes
            if free and neighbor(box, MIRRORED[move]) in cells:
                yield (box, move), Play(box, (play.boxes - {box}) | {to})


def nearest_by_pushes(level: Level, play: Play, pushes: int, most_states: int) -> Moves:
    """Return the moves to the best state at most `pushes` away (breadth-first, at most
    `most_states` states): a solved one, else the one whose boxes have the shortest way to go; no
    moves if no state is better than the current one. A state with a dead box is never chosen."""
    bounds = pushes_to_target(level)
    predecessors: dict[_Key, tuple[_Key, _Push] | None] = {_key(level, play): None}
    frontier = list(predecessors)
    best, least = frontier[0], _lower_bound(bounds, play.boxes)
    for _ in range(pushes):
        wave: list[_Key] = []
        for key in frontier:
            if len(predecessors) >= most_states:
                break
            for push, after in successors(level, Play(*key)):
                next_key = _key(level, after)
                if next_key in predecessors or len(predecessors) >= most_states:
                    continue
                predecessors[next_key] = (key, push)
                wave.append(next_key)
                to_go = _lower_bound(bounds, after.boxes)
                if to_go < least:
                    best, least = next_key, to_go
        frontier = wave
    return _moves(level, play, _push_path(predecessors, best))


def _lower_bound(bounds: Mapping[Cell, int], boxes: frozenset[Cell]) -> int:
    return sum(bounds.get(box, 1_000) for box in boxes)


def _key(level: Level, play: Play) -> _Key:
    return min(walkable_cells(level, play)), play.boxes


def _push_path(predecessors: Mapping[_Key, tuple[_Key, _Push] | None], key: _Key) -> list[_Push]:
    pushes: list[_Push] = []
    while (step := predecessors[key]) is not None:
        key, push = step
        pushes.append(push)
    return pushes[::-1]


def _moves(level: Level, play: Play, pushes: list[_Push]) -> Moves:
    moves: list[str] = []
    for box, move in pushes:
        for step in (*paths_to_cells(level, play)[neighbor(box, MIRRORED[move])], move):
            play = level.moved(play, step)
            moves.append(step)
    return tuple(moves)
