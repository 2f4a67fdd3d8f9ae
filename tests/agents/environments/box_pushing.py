"""A second Sokoban solver: breadth-first search over all positions of the player and the boxes, in
waves with an equal number of pushes. It reads the drawing of a level itself and shares neither code
nor method with the environment's solver, which searches only over pushes, with a bound."""

from __future__ import annotations

from collections.abc import Sequence

State = tuple[int, int]
"""The player's position, and the boxes as bits; a position is the index of a character in the
drawing."""


def fewest_pushes(rows: Sequence[str]) -> int | None:
    """Return the least number of pushes that solve the level; None if there is no solution."""
    width, text = len(rows[0]), "".join(rows)
    wall = [sign == "#" for sign in text]
    goals = sum(1 << place for place, sign in enumerate(text) if sign in ".*+")
    boxes = sum(1 << place for place, sign in enumerate(text) if sign in "$*")
    player = next(place for place, sign in enumerate(text) if sign in "@+")
    wave: list[State] = [(player, boxes)]
    visited_states = set(wave)
    pushes = 0
    while wave:
        pushed: list[State] = []
        # The wave grows while it is processed, by the positions that the player can walk to.
        for at, boxes in wave:
            if boxes == goals:
                return pushes
            for step in (1, -1, width, -width):
                to = at + step
                if wall[to]:
                    continue
                state = (to, boxes)
                pushing = boxes >> to & 1
                if pushing:
                    behind = to + step
                    if wall[behind] or boxes >> behind & 1:
                        continue
                    state = (to, boxes ^ (1 << to) ^ (1 << behind))
                if state in visited_states:
                    continue
                if pushing:
                    # Not marked as seen: a walk of this same wave may still lead there.
                    pushed.append(state)
                else:
                    wave.append(state)
                    visited_states.add(state)
        wave = [state for state in dict.fromkeys(pushed) if state not in visited_states]
        visited_states.update(wave)
        pushes += 1
    return None
