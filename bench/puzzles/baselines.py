"""Counts instances of the same set that hand-written players solve: the environment's own players,
and the best blind ones (`loopline.agents.environments.blind`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from loopline.agents.environments.blind import PUZZLES, blind_scores
from loopline.agents.environments.environment import AnyEnvironment, Difficulty, Instance
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.registry import find
from loopline.agents.environments.team_episode import TeamEpisode
from loopline.agents.errors import AgentError
from loopline.agents.records import JsonObject

_BLIND = "blind "
_BLIND_AGENT = (
    "blind: a single agent that gives the same answer to every puzzle, the best that a search on "
    "training puzzles finds"
)


def players_by_hand(reference: JsonObject) -> str:
    """Describe the players; empty for a game without any, or one that is not installed."""
    game = reference.get("game")
    try:
        do = find(game).players_do if isinstance(game, str) else ""
    except AgentError:
        return ""
    solved = reference.get("baselines")
    blind = isinstance(solved, dict) and any(name.startswith(_BLIND) for name in solved)
    return f"{do}; {_BLIND_AGENT}" if do and blind else do


def baselines_of(
    environment: AnyEnvironment, levels: Difficulty, instances: Sequence[Instance], seed: int
) -> JsonObject:
    """Return the number of solved instances by player. Deterministic for a seed. If a tool agent
    proposes and a plan agent acts, there are also blind players; they are found by a search on
    training puzzles of `levels`. Empty if hand-written players can't play one of the puzzles."""
    if not instances or not all(environment.by_hand(instance) for instance in instances):
        return {}
    solved: JsonObject = {
        name: sum(plays(instance, seed) for instance in instances)
        for name, plays in environment.players.items()
    }
    if isinstance(environment.open(instances[0]), TeamEpisode):
        training = environment.puzzles(Split.TRAIN, seed, PUZZLES, levels)
        solved |= blind_scores(training, cast("Any", instances))
    return solved
