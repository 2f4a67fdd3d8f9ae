"""Measures how many of the same instances players solve that never read the instruction.

Some players get the oracle's executed calls and only have to answer. This is an upper bound for
blind answering: the calls contain most of the instruction. The other players make the calls that
need no knowledge, or none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from loopline.agents.environments.api_worlds import APIS, MAX_CALLS, Instance
from loopline.agents.environments.api_worlds.world import leaf_values
from loopline.agents.records import JsonObject, ToolCall

Observations = Sequence[str]
Answer = Callable[[str, Observations], str | None]
"""Returns an answer from the instruction, which it may repeat, and the observations; None means
giving up."""
Caller = Callable[[Instance], tuple[Sequence[ToolCall], Observations]]
"""Returns the calls made and the observations."""

DONE = "Done."
GIVEN = "the oracle's calls"
"""Name of the caller that knows the instruction."""


def _oracle_player(instance: Instance) -> tuple[Sequence[ToolCall], Observations]:
    return instance.oracle.calls, [step.observation for step in instance.oracle.steps]


def _silent_player(instance: Instance) -> tuple[Sequence[ToolCall], Observations]:
    return (), ()


def _argumentless_player(instance: Instance) -> tuple[Sequence[ToolCall], Observations]:
    reading = [name for name in instance.recipe.tools if not APIS[name].changes][:MAX_CALLS]
    world = instance.world()
    calls = [ToolCall(id=name, name=name, arguments={}) for name in reading]
    return calls, [world.call(name, {}) for name in reading]


def _values(observations: Iterable[str]) -> Iterator[str]:
    for observation in observations:
        yield from map(str, leaf_values(json.loads(observation)))


def _first_or_none(observations: Observations) -> str | None:
    failed = not observations or "error" in json.loads(observations[-1])
    return None if failed else next(_values(observations[-1:]), DONE)


CALLERS: dict[str, Caller] = {
    GIVEN: _oracle_player,
    "no call": _silent_player,
    "each reading tool without arguments": _argumentless_player,
}
ANSWERS: dict[str, Answer] = {
    "'Done.'": lambda instruction, observations: DONE,
    "the instruction": lambda instruction, observations: instruction,
    "the last observation": lambda instruction, observations: (
        observations[-1] if observations else DONE
    ),
    "all observations": lambda instruction, observations: " ".join(observations) or DONE,
    "the last values": lambda instruction, observations: (
        ", ".join(_values(observations[-1:])) or DONE
    ),
    "all values": lambda instruction, observations: ", ".join(_values(observations)) or DONE,
    "the first of the last values": lambda instruction, observations: next(
        _values(observations[-1:]), DONE
    ),
    "the last value": lambda instruction, observations: [DONE, *_values(observations[-1:])][-1],
    "gives up": lambda instruction, observations: None,
    "gives up after an error, else the first of the last values": (
        lambda instruction, observations: _first_or_none(observations)
    ),
}


Player = tuple[str, str]
"""The source of the player's calls, and its answer."""
PLAYERS: tuple[Player, ...] = tuple((caller, says) for caller in CALLERS for says in ANSWERS)


def name_of(player: Player) -> str:
    """Name of a player in a report."""
    return "; ".join(player)


def solved_by_players(instances: Iterable[Instance]) -> dict[Player, int]:
    """Return the number of solved instances by player."""
    solved: Counter[Player] = Counter(dict.fromkeys(PLAYERS, 0))
    for instance in instances:
        solved.update(_solvers(instance))
    return solved


def best_of(solved: Mapping[Player, int], *, is_given: bool) -> Player:
    """Return the player that solves most, among those with the oracle's calls or among the
    others."""
    candidates = [player for player in PLAYERS if (player[0] == GIVEN) == is_given]
    return max(candidates, key=lambda player: solved[player])


def baselines_of(instances: Iterable[Instance]) -> JsonObject:
    """Return the number of solved instances by player name: all players with the oracle's calls,
    best first, and the best of the others."""
    solved = solved_by_players(instances)
    given_players = sorted(
        (player for player in PLAYERS if player[0] == GIVEN), key=lambda player: -solved[player]
    )
    return {
        name_of(player): solved[player]
        for player in (*given_players, best_of(solved, is_given=False))
    }


def _solvers(instance: Instance) -> Iterator[Player]:
    for caller, call in CALLERS.items():
        calls, observations = call(instance)
        if instance.verify_calls(calls).solved:
            for says, answer in ANSWERS.items():
                if instance.verify_answer(answer(instance.instruction, observations), calls).solved:
                    yield caller, says
