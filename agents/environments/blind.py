"""Blind players of a puzzle: a single agent that gives the same answers to every puzzle.

The best blind player puts a solved share into perspective: if it comes close to a team on a game,
the game shows nothing about the team. The player is found by hill climbing over its answers on
training puzzles, and compared with every other player on the held-out ones. A blind tool agent sees
nothing, but its tools do, so it shows how much the tools solve by themselves.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple, Protocol, cast

from loopline.agents.environments.game import Agent
from loopline.agents.environments.marked_answers import MARK, MOVES
from loopline.agents.environments.registry import find
from loopline.agents.environments.team_episode import (
    PLAN,
    TOOL,
    Playable,
    Puzzle,
    TeamEpisode,
    played_by,
)
from loopline.agents.environments.tool_language import Kind
from loopline.agents.records import Task

PUZZLES = 50
"""Number of training puzzles that the search uses."""
TRIES = 40
"""Number of changes to the best answers that are tried, after all answers that repeat one item."""
DIFFERENT = 4
"""Maximum number of different answers; later turns repeat them in the same order."""
_LONGEST = 40
"""Maximum number of items in a plan agent's answer."""
_OF_A_KIND = 8
_OPERANDS = ("n1", "n2", "n3", "r1", "2")

Anyone = TeamEpisode[Any, Any]


class Instance(Playable, Protocol):
    """A puzzle of a game for two agents."""

    @property
    def task(self) -> Task: ...


class BlindPlayer(NamedTuple):
    """Texts of an agent turn by turn: one answer after another, then again from the first."""

    agent: Agent
    answers: tuple[tuple[str, ...], ...]

    def says(self, turn: int) -> str:
        """Return the agent's whole text in a turn."""
        return f"{MARK} [{', '.join(self.answers[turn % len(self.answers)])}]"


def blind_scores(training: Sequence[Instance], held_out: Sequence[Instance]) -> dict[str, int]:
    """Return how many held-out puzzles each agent solves blindly, by player name."""
    scores: dict[str, int] = {}
    for agent in (PLAN, TOOL):
        best = best_blind_player(training, agent)
        scores[f"blind {agent.replace('_', ' ')}"] = count_solved(
            best, open_episodes(held_out, agent)
        )
    return scores


def best_blind_player(
    training: Sequence[Instance], agent: Agent, *, seed: int = 0, tries: int = TRIES
) -> BlindPlayer:
    """Return the best player found by the search. Deterministic for a seed; `training` must not be
    empty."""
    episodes = open_episodes(training[:PUZZLES], agent)
    items = _items(episodes[0].puzzle, agent)
    setting = episodes[0].puzzle.setting
    most = setting.calls if agent == TOOL else _LONGEST
    rng = random.Random(seed)
    best = BlindPlayer(agent, ((items[0],),))
    record = count_solved(best, episodes)
    simple = list(_simple_answers(items, most))
    for number in range(len(simple) + tries):
        if number < len(simple):
            answers = simple[number]
        else:
            answers = _mutate_answer(best.answers, items, most, min(DIFFERENT, setting.turns), rng)
        solved = count_solved(BlindPlayer(agent, answers), episodes, least=record + 1)
        if solved > record:
            best, record = BlindPlayer(agent, answers), solved
    return best


def open_episodes(instances: Sequence[Instance], agent: Agent) -> list[Anyone]:
    """Open the puzzles' episodes, to be played by this agent alone."""
    episodes: list[Anyone] = []
    for instance in instances:
        task = played_by(agent, instance, python=False).task
        episodes.append(cast("Anyone", find(task.environment).reset(task.instance)))
    return episodes


def count_solved(player: BlindPlayer, episodes: Sequence[Anyone], least: int = 0) -> int:
    """Count the episodes that the player solves. Stops once `least` is out of reach."""
    solved = 0
    for remaining, episode in zip(range(len(episodes), 0, -1), episodes, strict=True):
        if solved + remaining < least:
            break
        played = episode.copy()
        while not played.done:
            played.apply(player.agent, player.says(played.turn))
        solved += played.verify().solved
    return solved


def _simple_answers(items: Sequence[str], most: int) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield answers with a single item, once or the maximum number of times; at most a few calls
    per name."""
    attempts = Counter[str]()
    for item in items:
        name = item.partition("(")[0]
        attempts[name] += 1
        if attempts[name] <= _OF_A_KIND:
            for often in {1, most}:
                yield ((item,) * often,)


def _mutate_answer(
    answers: tuple[tuple[str, ...], ...],
    items: Sequence[str],
    most: int,
    different: int,
    rng: random.Random,
) -> tuple[tuple[str, ...], ...]:
    """Change one answer: insert, remove or move a run of an item, or replace all of it; or add one
    answer."""
    changed = list(answers)
    if len(changed) < different and rng.random() < 0.3:
        changed.append(rng.choice(changed))
    at = rng.randrange(len(changed))
    answer = changed[at]
    run = (rng.choice(items),) * rng.randint(1, min(3, most))
    where, out = rng.randint(0, len(answer)), rng.choice((0, 0, 1, len(run)))
    fresh = rng.random() < 0.1
    answer = run if fresh else (*answer[:where], *run, *answer[where + out :])
    if rng.random() < 0.2:
        answer = (*answer[:where], *answer[where + 1 :]) or run
    changed[at] = answer[:most]
    return tuple(changed)


def _items(puzzle: Puzzle[Any, Any], agent: Agent) -> list[str]:
    """Return the items that answers can consist of, for any instance."""
    if agent == TOOL:
        return [
            f"{function.name}({', '.join(values)})"
            for function in puzzle.functions.values()
            for values in product(*(_values(puzzle, kind) for _, kind in function.arguments))
        ]
    return list(puzzle.items())


def _values(puzzle: Puzzle[Any, Any], kind: Kind) -> Sequence[str]:
    match kind:
        case "move":
            return sorted(MOVES)
        case "operand":
            return _OPERANDS
        case "number":
            return [
                str(number) for number in range(1, max(puzzle.largest, puzzle.setting.search) + 1)
            ]
