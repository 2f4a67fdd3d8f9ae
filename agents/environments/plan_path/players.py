"""Hand-written players, to compare with what was learned. Each has an agent's whole budget: as many
answers as there are turns, as long as answers may be."""

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
"""The next move from where a walk has led."""


def random_walk(instance: PlanPathInstance, walk: Walk, rng: random.Random) -> str:
    """Any of the four moves."""
    return rng.choice(tuple(STEPS))


def wall_blind_greedy(instance: PlanPathInstance, walk: Walk, rng: random.Random) -> str:
    """A move that would lower the Manhattan distance to the goal, whether free or not; up and down
    before left and right. It stops at the first wall on its way."""
    return min(STEPS, key=lambda move: manhattan(neighbor(walk.at, move), instance.goal))


def wall_aware_greedy(instance: PlanPathInstance, walk: Walk, rng: random.Random) -> str:
    """The free neighbour with the least Manhattan distance to the goal, a random one of the best.
    Without memory: it can go to and fro in front of a wall."""
    free = [move for move in STEPS if is_free(instance.grid, neighbor(walk.at, move))]
    rng.shuffle(free)
    return min(free, key=lambda move: manhattan(neighbor(walk.at, move), instance.goal))


def explorer(instance: PlanPathInstance, walk: Walk, rng: random.Random) -> str:
    """The first move of the way, within what agents see of the grid, to the goal or to the cell
    from which it is nearest, the way there included; where visited cells are marked, to one that
    is not."""
    ways = _visible_paths(instance, walk.at)

    def cost(cell: Cell) -> tuple[bool, bool, int, int]:
        marked = instance.setting.marks and cell in walk.visited
        there = len(ways[cell])
        return cell != instance.goal, marked, manhattan(cell, instance.goal) + there, -there

    return ways[min(ways, key=cost)][0]


def oracle(instance: PlanPathInstance, walk: Walk, rng: random.Random) -> str:
    """A move on a shortest path."""
    return shortest_path(instance, walk.at)[0]


POLICIES: dict[str, Policy] = {
    "random": random_walk,
    "wall-blind greedy": wall_blind_greedy,
    "memoryless wall-aware greedy": wall_aware_greedy,
    "explorer": explorer,
    "oracle": oracle,
}


def solves(policy: Policy, instance: PlanPathInstance, seed: int) -> bool:
    """Whether a policy solves an instance: it answers in every turn with all the moves that it
    would make from where it is, up to the first one that its answer would end at."""
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
    """Moves from `start` to each other visible cell of the grid, without leaving what is
    visible."""
    sight = len(instance.grid) + len(instance.grid[0])
    if instance.setting.view is not None:
        sight = instance.setting.view
    ways: dict[Cell, Moves] = {start: ()}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        for move in STEPS:
            neighbour = neighbor(cell, move)
            away = abs(neighbour[0] - start[0]), abs(neighbour[1] - start[1])
            far = sum(away) > 1 if instance.setting.listed else max(away) > sight
            if neighbour not in ways and not far and is_free(instance.grid, neighbour):
                ways[neighbour] = (*ways[cell], move)
                queue.append(neighbour)
    del ways[start]
    return ways
