"""A second Sokoban solver: breadth-first over every place of the player and of the boxes, in waves
of equally many pushes. It reads the drawing of a level itself and shares neither code nor method
with the environment's, which searches over pushes alone, by a bound."""

from __future__ import annotations

from collections.abc import Sequence

State = tuple[int, int]
"""The player's place, and the boxes as bits; a place is the index of a sign in the drawing."""


def fewest_pushes(rows: Sequence[str]) -> int | None:
    """Least pushes of a solution; None if there is none."""
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
        # The wave grows while it is walked through: by what the player can walk to.
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
                    # Not seen yet: a walk of this very wave may still lead there.
                    pushed.append(state)
                else:
                    wave.append(state)
                    visited_states.add(state)
        wave = [state for state in dict.fromkeys(pushed) if state not in visited_states]
        visited_states.update(wave)
        pushes += 1
    return None
