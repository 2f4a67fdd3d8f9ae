"""What weak teams say, as rows to learn from: puzzles of the training split, played by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from loopline.agents.environments.game import Episode

PER_PUZZLE = 4
"""Answers taken of each puzzle, so that those of one step are of many."""

InstanceT = TypeVar("InstanceT")
EpisodeT = TypeVar("EpisodeT", bound=Episode)


def demonstrated(
    puzzles: Iterable[tuple[InstanceT, EpisodeT]],
    answer: Callable[[InstanceT, EpisodeT, random.Random], str],
    seed: int,
) -> Iterator[tuple[str, str]]:
    """Observations with what `answer(instance, episode, dice)` says for the agent whose turn it
    is. The dice are those of the seed; the episodes are played to their end."""
    dice = random.Random(f"demonstrations:{seed}")
    for instance, episode in puzzles:
        said: list[tuple[str, str]] = []
        while not episode.done:
            agent = episode.agent
            text = answer(instance, episode, dice)
            said.append((episode.observe(agent), text))
            episode.apply(agent, text)
        yield from dice.sample(said, min(PER_PUZZLE, len(said)))
