"""Policies by hand, to print beside whatever was learned: one move at a time, without memory."""

from __future__ import annotations

import random
from collections.abc import Callable

from agents.environments.game import PLAN
from agents.environments.grid import STEPS, Cell, beside, manhattan
from agents.environments.plan_path.game import PlanPath
from agents.environments.plan_path.instance import PlanPathInstance, is_free, shortest_path

Policy = Callable[[PlanPathInstance, Cell, random.Random], str]
"""The next move from a cell."""


def random_walk(instance: PlanPathInstance, at: Cell, rng: random.Random) -> str:
    """Any of the four moves."""
    return rng.choice(tuple(STEPS))


def wall_blind_greedy(instance: PlanPathInstance, at: Cell, rng: random.Random) -> str:
    """A move that would lower the Manhattan distance to the goal, whether free or not; up and down
    before left and right. It stops at the first wall on its way."""
    return min(STEPS, key=lambda move: manhattan(beside(at, move), instance.goal))


def wall_aware_greedy(instance: PlanPathInstance, at: Cell, rng: random.Random) -> str:
    """The free neighbour with the least Manhattan distance to the goal, one of the best by chance.
    Without memory: it can go to and fro in front of a wall."""
    free = [move for move in STEPS if is_free(instance.grid, beside(at, move))]
    rng.shuffle(free)
    return min(free, key=lambda move: manhattan(beside(at, move), instance.goal))


def oracle(instance: PlanPathInstance, at: Cell, rng: random.Random) -> str:
    """A move on a shortest path."""
    return shortest_path(instance, at)[0]


POLICIES: dict[str, Policy] = {
    "random": random_walk,
    "wall-blind greedy": wall_blind_greedy,
    "memoryless wall-aware greedy": wall_aware_greedy,
    "oracle": oracle,
}


def plays(policy: Policy, instance: PlanPathInstance, moves: int, seed: int) -> bool:
    """Whether a policy solves an instance in at most `moves` moves (at most 400, one a turn)."""
    setting = instance.setting.model_copy(update={"turns": moves, "team": (PLAN,)})
    alone = instance.model_copy(update={"setting": setting})
    episode = PlanPath().reset(alone.model_dump(mode="json"))
    rng = random.Random(f"{instance.id}:{seed}")
    while not episode.done:
        episode.apply(PLAN, f"#### [{policy(instance, episode.state.at, rng)}]")
    return episode.verify().solved
