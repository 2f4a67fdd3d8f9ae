"""Lessons that teach an environment to small models with random weights: a weak team to imitate,
the tokens of its texts, and the amount of training."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from loopline.agents.environments.environment import D, I
from loopline.agents.environments.game import Episode
from loopline.agents.records import JsonObject, Record

E = TypeVar("E", bound=Episode)
W = TypeVar("W", bound=Record)


@dataclass(frozen=True)
class Lessons(Generic[D, I, E, W]):
    """Lessons of an environment. Everything is pure: the same arguments yield the same texts."""

    puzzle: D
    """Difficulty and setting of the learned puzzles."""
    weak_team: W
    """Weaknesses of the imitated team."""
    demonstrated_puzzles: Callable[[int, D, W], Iterator[I]]
    """Yields training puzzles that the weak team demonstrates, without end, by seed."""
    answer: Callable[[I, E, W, random.Random], str]
    """Returns the weak team's text for the agent that acts next."""
    pieces: Sequence[str]
    """Frequent pieces of observations and answers, one token each."""
    failure: Callable[[E, int], str]
    """Returns the kind of failure of an unsolved episode in a word or two, given the number of
    turns with a refused action."""
    training: JsonObject
    """Length and speed of the training: values that differ from the defaults of
    `loopline.trainers.grpo.arms.training.Training`."""
    expert: Callable[[I, E], str | None] | None = None
    """Returns the text of a player that knows the solution, for the agent that acts next; None in a
    state from which it sees no way to the solution. There may be no such player."""
    about: Callable[[W], str] = lambda weak_team: ""
    """Describes the peculiarity of the demonstrations, in one sentence of a report."""
    published: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    """Published percentages of solved puzzles, by model and arm of `bench grpo` (arXiv
    2510.11062)."""
    unpublished: str = ""
    """Reason why there are no published results."""
    players: Mapping[str, Callable[[I, int, W], bool]] = field(
        default_factory=dict[str, Callable[[I, int, W], bool]]
    )
    """Additional players by name; each returns whether it solves a puzzle, given its number. They
    are an oracle, the weak team, and a team that uses only its tools."""


AnyLessons = Lessons[Any, Any, Any, Any]


def solves(episode: E, answer: Callable[[E], str]) -> bool:
    """Whether an episode ends solved if every agent uses the text that `answer` returns."""
    while not episode.done:
        episode.apply(episode.agent, answer(episode))
    return episode.verify().solved
