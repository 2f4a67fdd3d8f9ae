"""Hand-written players of Sokoban with one box, which have an agent's moves."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from loopline.agents.environments.grid import MIRRORED, Cell, manhattan, neighbor
from loopline.agents.environments.marked_answers import MARK
from loopline.agents.environments.sokoban.instance import SokobanInstance
from loopline.agents.environments.sokoban.level import Level, Play
from loopline.agents.environments.sokoban.puzzle import MAX_MOVES, open_episode
from loopline.agents.environments.sokoban.solver import paths_to_cells, solve, successors
from loopline.agents.environments.team_episode import PLAN, played_by

Push = tuple[Cell, str]
"""Cell of the box, and the direction of the push."""
Player = Callable[[SokobanInstance, Play, random.Random], Push | None]
"""Chooses the next push; None if it has none."""


def random_push(instance: SokobanInstance, play: Play, rng: random.Random) -> Push | None:
    """Return a random possible push."""
    possible = [push for push, _ in successors(instance.parsed[0], play)]
    return rng.choice(possible) if possible else None


def greedy_push(instance: SokobanInstance, play: Play, rng: random.Random) -> Push | None:
    """Return the push that brings the box closest to the target (Manhattan distance) without ending
    in a corner. Without memory, this player can push back and forth."""
    level = instance.parsed[0]
    possible = [push for push, after in successors(level, play) if not level.stuck_boxes(after)]
    return min(possible, key=lambda push: distance_to_target(level, neighbor(*push)), default=None)


PLAYERS: dict[str, Player] = {"random": random_push, "push-greedy": greedy_push}


def player_solves(player: Player, instance: SokobanInstance, seed: int = 0) -> bool:
    """Whether a hand-written player solves a level with an agent's moves: one answer per turn, of
    the maximum length."""
    level, play = instance.parsed
    rng, moves = random.Random(instance.id), list[str]()
    while len(moves) < instance.setting.turns * MAX_MOVES:
        push = None if level.solved(play) else player(instance, play, rng)
        if push is None:
            break
        box, move = push
        for step in (*paths_to_cells(level, play)[neighbor(box, MIRRORED[move])], move):
            play = level.moved(play, step)
            moves.append(step)
    return _moves_solve(instance, moves)


def solves_by_search(instance: SokobanInstance) -> bool:
    """Whether a search for the fewest pushes solves a level."""
    moves = solve(*instance.parsed)
    return moves is not None and _moves_solve(instance, moves)


def _moves_solve(instance: SokobanInstance, moves: Sequence[str]) -> bool:
    episode = open_episode(played_by(PLAN, instance))
    for at in range(0, len(moves), MAX_MOVES):
        if not episode.done:
            episode.apply(PLAN, f"{MARK} [{', '.join(moves[at : at + MAX_MOVES])}]")
    return episode.verify().solved


def distance_to_target(level: Level, box: Cell) -> int:
    """Return the Manhattan distance to the target."""
    (target,) = level.targets
    return manhattan(box, target)
