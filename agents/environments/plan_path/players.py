"""Hand-written players, for comparison with trained policies. Each has an agent's whole budget: one
answer per turn, of the maximum length."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from loopline.agents.environments.grid import STEPS, Cell, manhattan, neighbor
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.plan_path.instance import PlanPathInstance, is_free, shortest_path
from loopline.agents.environments.plan_path.puzzle import open_episode
from loopline.agents.environments.plan_path.walk import Moves, Walk, refusal
from loopline.agents.environments.team_episode import PLAN, played_by

Policy = Callable[[PlanPathInstance, Walk, random.Random], str]
"""Returns the next move of a walk."""


def random_walk(instance: PlanPathInstance, walk: Walk, rng: random.Random) -> str:
    """Return a random move."""
    return rng.choice(tuple(STEPS))


def wall_blind_greedy(instance: PlanPathInstance, walk: Walk, rng: random.Random) -> str:
    """Return a move that would reduce the Manhattan distance to the goal, whether free or not; up
    and down before left and right. This player stops at the first wall on its way."""
    return min(STEPS, key=lambda move: manhattan(neighbor(walk.at, move), instance.goal))


def wall_aware_greedy(instance: PlanPathInstance, walk: Walk, rng: random.Random) -> str:
    """Return the move to the free neighbour with the smallest Manhattan distance to the goal; ties
    are random. Without memory, this player can go back and forth in front of a wall."""
    free = [move for move in STEPS if is_free(instance.grid, neighbor(walk.at, move))]
    rng.shuffle(free)
    return min(free, key=lambda move: manhattan(neighbor(walk.at, move), instance.goal))


def explorer(instance: PlanPathInstance, walk: Walk, rng: random.Random) -> str:
    """Return the first move on a path through the visible cells, to the goal or to the cell with
    the smallest sum of path length and distance to the goal; unvisited cells come first if visited
    ones are marked."""
    paths = _visible_paths(instance, walk.at)

    def cost(cell: Cell) -> tuple[bool, bool, int, int]:
        marked = instance.setting.marks and cell in walk.visited
        length = len(paths[cell])
        return cell != instance.goal, marked, manhattan(cell, instance.goal) + length, -length

    return paths[min(paths, key=cost)][0]


def oracle(instance: PlanPathInstance, walk: Walk, rng: random.Random) -> str:
    """Return a move on a shortest path."""
    return shortest_path(instance, walk.at)[0]


POLICIES: dict[str, Policy] = {
    "random": random_walk,
    "wall-blind greedy": wall_blind_greedy,
    "memoryless wall-aware greedy": wall_aware_greedy,
    "explorer": explorer,
    "oracle": oracle,
}


def solves(policy: Policy, instance: PlanPathInstance, seed: int) -> bool:
    """Whether a policy solves an instance: in every turn it answers with all moves that it would
    make from its position, up to the first one that would end its answer."""
    alone = played_by(PLAN, instance)
    episode = open_episode(alone)
    rng = random.Random(f"{instance.id}:{seed}")
    while not episode.done:
        moves = _answer(policy, alone, episode.state, rng)
        episode.apply(PLAN, f"{MARK} [{', '.join(moves)}]")
    return episode.verify().solved


def _answer(policy: Policy, instance: PlanPathInstance, walk: Walk, rng: random.Random) -> Moves:
    moves: list[str] = []
    while walk.at != instance.goal and len(moves) < instance.longest_answer:
        move = policy(instance, walk, rng)
        moves.append(move)
        if refusal(instance, walk, move) is None:
            walk = walk.moved(move)
        elif instance.setting.rules == "strict":
            break
    return tuple(moves)


def _visible_paths(instance: PlanPathInstance, start: Cell) -> dict[Cell, Moves]:
    """Return the moves from `start` to every other visible cell, through visible cells only."""
    sight = len(instance.grid) + len(instance.grid[0])
    if instance.setting.view is not None:
        sight = instance.setting.view
    paths: dict[Cell, Moves] = {start: ()}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        for move in STEPS:
            neighbour = neighbor(cell, move)
            away = abs(neighbour[0] - start[0]), abs(neighbour[1] - start[1])
            far = sum(away) > 1 if instance.setting.listed else max(away) > sight
            if neighbour not in paths and not far and is_free(instance.grid, neighbour):
                paths[neighbour] = (*paths[cell], move)
                queue.append(neighbour)
    del paths[start]
    return paths
