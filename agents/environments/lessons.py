"""Lessons that teach an environment to small models that begin with random weights: a weak team to
imitate, the tokens of its texts, and how much training it takes."""

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
    """Lessons of an environment. Everything is pure: the same arguments give the same texts."""

    puzzle: D
    """Difficulty of the puzzles that are learned, and how they are played."""
    weak_team: W
    """Weakness of the team that is imitated."""
    heard: Callable[[int, D, W], Iterator[I]]
    """Endless training puzzles that the weak team demonstrates, by seed."""
    answer: Callable[[I, E, W, random.Random], str]
    """What the weak team says for the agent whose turn it is."""
    pieces: Sequence[str]
    """Frequent pieces of observations and answers, one token each."""
    failure: Callable[[E, int], str]
    """Kind of failure of an episode that ended unsolved, in a word or two; this many of its turns
    had an action refused."""
    training: JsonObject
    """Length and speed of the training: what differs from the defaults of
    `loopline.trainers.grpo.arms.training.Training`."""
    about: Callable[[W], str] = lambda weak_team: ""
    """Description of what sets the demonstrations apart, in a sentence of a report."""
    published: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    """Published percentages of solved puzzles, by model and arm of `bench grpo` (arXiv
    2510.11062)."""
    unpublished: str = ""
    """Reason why nothing is published."""
    players: Mapping[str, Callable[[I, int, W], bool]] = field(
        default_factory=dict[str, Callable[[I, int, W], bool]]
    )
    """Further players: whether one solves a puzzle, given its number. An oracle, the weak team, and
    what a team can do by its tools alone."""


AnyLessons = Lessons[Any, Any, Any, Any]


def solves(episode: E, answer: Callable[[E], str]) -> bool:
    """Whether an episode ends solved if the agent whose turn it is always says what `answer`
    returns."""
    while not episode.done:
        episode.apply(episode.agent, answer(episode))
    return episode.verify().solved
