"""An environment as arms learn it: its puzzles, how a weak team plays them, which ones hand-written
players solve, and how its texts are tokenized (`loopline.agents.environments.lessons`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Self, cast

from pydantic import SerializeAsAny, ValidationInfo, field_validator

from loopline.agents.environments.blind import PUZZLES, blind_scores
from loopline.agents.environments.environment import AnyEnvironment, Difficulty, Instance
from loopline.agents.environments.game import Agent, Episode
from loopline.agents.environments.lessons import AnyLessons
from loopline.agents.environments.puzzle_splits import Split, take_distinct
from loopline.agents.environments.registry import environments, find
from loopline.agents.errors import InvalidOptions, PluginError
from loopline.agents.records import Record
from loopline.trainers.grpo.arms.training import Training
from loopline.trainers.grpo.vectorized_rollout import Table

Team = tuple[Agent, ...]
"""Agents that act in a turn, in order."""
PER_PUZZLE = 4
"""Answers taken from each demonstrated puzzle, so that the answers of one step come from many
puzzles."""


def taught() -> list[str]:
    """The names of environments that arms can learn; one that can't be imported is left out."""
    names: list[str] = []
    for name in environments.names():
        with suppress(PluginError):
            names += [name] if find(name).lessons is not None else []
    return names


def lessons_of(environment: AnyEnvironment) -> AnyLessons:
    """The lessons of an environment. Raises `InvalidOptions` if it has none."""
    if environment.lessons is None:
        raise InvalidOptions(
            f"{environment.name} has no lessons (loopline.agents.environments.lessons), which "
            f"models with random weights need; these have: {', '.join(taught())}"
        )
    return environment.lessons


class ExpertTable(NamedTuple):
    """An episode, and a player that knows its solution."""

    episode: Episode
    answer: Callable[[], str | None]
    """Returns the player's text for the agent that acts next; None if it sees no way to the
    solution."""


class LearnedGame(Record):
    """A game with its difficulty and weak team: part of the settings that determine every result.
    All methods are pure: the same arguments yield the same puzzles and texts."""

    name: str
    puzzle: SerializeAsAny[Record]
    weak_team: SerializeAsAny[Record]

    @field_validator("puzzle", "weak_team", mode="before")
    @classmethod
    def _of_its_environment(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, Record) or "name" not in info.data:
            return value
        environment = find(info.data["name"])
        of_team = type(lessons_of(environment).weak_team)
        model = environment.difficulty if info.field_name == "puzzle" else of_team
        return cast("type[Record]", model).model_validate(value)

    @classmethod
    def of(cls, name: str) -> Self:
        """The game at its default difficulty for training. Raises `UnknownName`, `PluginError` or
        `InvalidOptions`."""
        environment = find(name)
        lessons = lessons_of(environment)
        return cls(name=environment.key, puzzle=lessons.puzzle, weak_team=lessons.weak_team)

    @property
    def environment(self) -> AnyEnvironment:
        return find(self.name)

    @property
    def lessons(self) -> AnyLessons:
        return lessons_of(self.environment)

    @property
    def training(self) -> Training:
        """Default settings of its training."""
        return Training.model_validate(self.lessons.training)

    @property
    def difficulty(self) -> Difficulty:
        return cast("Difficulty", self.puzzle)

    @property
    def pieces(self) -> tuple[str, ...]:
        """Frequent pieces of observations and answers, one token each."""
        return tuple(self.lessons.pieces)

    @property
    def turns(self) -> int:
        """Maximum number of turns of an episode."""
        return self.difficulty.setting.turns

    def tables(self, split: Split, seed: int, count: int, team: Team | None = None) -> list[Table]:
        """The first `count` puzzles of a stream, in their initial state, played by `team` if given,
        otherwise by the game's own team. Puzzles of other splits than training are all different;
        raises ValueError if there are not enough."""
        return [
            Table(instance.id, self.environment.open(instance))
            for instance in self._first(split, seed, count, _played_by(self.difficulty, team))
        ]

    def demonstrations(self, seed: int, team: Team | None = None) -> Iterator[tuple[str, str]]:
        """Endless observations of training puzzles with the weak team's answers. For a `team` of
        one agent, the answers are those of a weak agent playing alone."""
        lessons = self.lessons
        rng = random.Random(f"demonstrations:{seed}")
        for instance in lessons.demonstrated_puzzles(
            seed, _played_by(self.difficulty, team), self.weak_team
        ):
            episode = self.environment.open(instance)
            rows: list[tuple[str, str]] = []
            while not episode.done:
                agent = episode.agent
                text = lessons.answer(instance, episode, self.weak_team, rng)
                rows.append((episode.observe(agent), text))
                episode.apply(agent, text)
            yield from rng.sample(rows, min(PER_PUZZLE, len(rows)))

    def expert_tables(self, seed: int, count: int) -> list[ExpertTable]:
        """The first `count` training puzzles of a stream, in their initial state. Raises
        `InvalidOptions` if no player of the game knows solutions."""
        expert = self.lessons.expert
        if expert is None:
            raise InvalidOptions(f"{self.name} has no expert (Lessons.expert) to learn from")
        instances = self._first(Split.TRAIN, seed, count, self.difficulty)
        episodes = [self.environment.open(instance) for instance in instances]
        return [
            ExpertTable(episode, partial(expert, instance, episode))
            for instance, episode in zip(instances, episodes, strict=True)
        ]

    def baselines(self, seed: int, count: int) -> dict[str, int]:
        """How many of the first `count` test puzzles each hand-written player solves. Among them
        are a random player, an oracle, the best that a team can do with its tools only, and the
        best blind players."""
        environment = self.environment
        instances = self._first(Split.TEST, seed, count, self.difficulty)
        solved = {
            name: sum(plays(instance, 0) for instance in instances)
            for name, plays in environment.players.items()
        }
        for name, plays in self.lessons.players.items():
            numbered = enumerate(instances)
            solved[name] = sum(
                plays(instance, number, self.weak_team) for number, instance in numbered
            )
        training = environment.puzzles(Split.TRAIN, seed, PUZZLES, self.difficulty)
        return {**solved, **blind_scores(training, cast("Any", instances))}

    def failure(self, episode: Episode, refused: int) -> str:
        """The kind of failure of an episode that ended unsolved, in a word or two; actions were
        refused in `refused` of its turns."""
        return self.lessons.failure(episode, refused)

    def _first(self, split: Split, seed: int, count: int, levels: Difficulty) -> list[Instance]:
        """The first puzzles of a split. Training puzzles may repeat; the others are all
        different."""
        drawn = cast("Iterator[Instance]", self.environment.stream(split, seed, levels))
        if split is Split.TRAIN:
            return list(islice(drawn, count))
        return take_distinct(drawn, count, lambda instance: instance.id)


def _played_by(levels: Difficulty, team: Team | None) -> Difficulty:
    """The same puzzles, played by `team`; None: by their own team."""
    if team is None:
        return levels
    return levels.model_copy(update={"setting": levels.setting.model_copy(update={"team": team})})
