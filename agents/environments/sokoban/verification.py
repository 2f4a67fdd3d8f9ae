"""Verifies that moves solve a level: an independent implementation of the rules on the level's
text, which shares no code with the episode that it judges.

Only boxes on targets count. The end of an episode proves nothing: PettingLLMs a054fb1 counts any
`done` as success, including the time-out.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.environments.game import Verdict
from loopline.agents.environments.sokoban.instance import SokobanInstance

_LEAVES = {"@": " ", "+": ".", "$": " ", "*": "."}
_PLAYER_ON = {" ": "@", ".": "+", "$": "@", "*": "+"}
_BOX_ON = {" ": "$", ".": "*"}


def check_play(instance: SokobanInstance, moves: Sequence[str]) -> Verdict:
    """Replay the moves. An impossible move is skipped; the level ends when it is solved."""
    width = len(instance.level[0]) + 2
    text = ["#"] * width
    for row in instance.level:
        text += ["#", *row, "#"]
    text += ["#"] * width
    offset = {"U": -width, "D": width, "L": -1, "R": 1}
    for move in moves:
        if "$" not in text:
            break
        player = next(place for place, sign in enumerate(text) if sign in "@+")
        to, behind = player + offset[move], player + 2 * offset[move]
        if text[to] in "$*":
            if text[behind] not in _BOX_ON:
                continue
            text[behind] = _BOX_ON[text[behind]]
        if text[to] != "#":
            text[player], text[to] = _LEAVES[text[player]], _PLAYER_ON[text[to]]
    remaining = text.count("$")
    return Verdict(f"{remaining} of the boxes are on no target") if remaining else Verdict()
