"""Puzzles at their beginning, and what comes of one that is played by a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, Self, TypeVar

from loopline.agents.environments.game import Episode
from loopline.agents.environments.puzzle_splits import Split, different
from loopline.agents.environments.team_episode import Setting
from loopline.trainers.grpo.arms.games.protocol import Team
from loopline.trainers.grpo.in_process import Table


class Instance(Protocol):
    """A puzzle of a stream."""

    @property
    def id(self) -> str: ...


class Difficulty(Protocol):
    """What a generator is asked for: a pydantic model."""

    @property
    def setting(self) -> Setting: ...

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self: ...


InstanceT = TypeVar("InstanceT", bound=Instance)
EpisodeT = TypeVar("EpisodeT", bound=Episode)
DifficultyT = TypeVar("DifficultyT", bound=Difficulty)


def played_by(puzzle: DifficultyT, team: Team | None) -> DifficultyT:
    """The same puzzles, played by that team; None: by their own."""
    if team is None:
        return puzzle
    return puzzle.model_copy(update={"setting": puzzle.setting.model_copy(update={"team": team})})


def first(instances: Iterator[InstanceT], split: Split, count: int) -> list[InstanceT]:
    """The first `count` instances of a stream of that split; but for training, which may meet a
    puzzle again, different ones. Raises ValueError where there are not as many."""
    if split is Split.TRAIN:
        return list(islice(instances, count))
    return different(instances, count, lambda one: one.id)


def tables_of(
    instances: Iterable[InstanceT], opened: Callable[[InstanceT], Episode]
) -> list[Table]:
    """Each instance with its episode at its beginning."""
    return [Table(one.id, opened(one)) for one in instances]


def solves(episode: EpisodeT, answer: Callable[[EpisodeT], str]) -> bool:
    """Whether an episode ends solved where whoever's turn it is says what `answer` does."""
    while not episode.done:
        episode.apply(episode.agent, answer(episode))
    return episode.verify().solved
