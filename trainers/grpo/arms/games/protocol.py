"""What the arms know of a game: which puzzles it has, how a weak team plays them, what players by
hand solve, and into which tokens its texts fall.

A game is a frozen pydantic model, difficulty and weak team included: it stands in the settings that
every result follows from. Its `name` is a literal, by which it is read back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from loopline.agents.environments.game import Agent, Episode
from loopline.agents.environments.puzzle_splits import Split
from loopline.trainers.grpo.in_process import Table

Team = tuple[Agent, ...]
"""Who acts in a turn, in order."""


class LearnedGame(Protocol):
    """See above. Everything is pure: the same arguments give the same puzzles and texts."""

    @property
    def name(self) -> str: ...

    @property
    def pieces(self) -> tuple[str, ...]:
        """Frequent pieces of observations and answers, one token each."""
        ...

    @property
    def turns(self) -> int:
        """Of an episode, at most."""
        ...

    def tables(self, split: Split, seed: int, count: int, team: Team | None = None) -> list[Table]:
        """The first `count` puzzles of a stream, at their beginning; played by `team` where one is
        named, else by the game's own. Those of other splits than training are all different; raises
        ValueError where there are not as many."""
        ...

    def demonstrations(self, seed: int, team: Team | None = None) -> Iterator[tuple[str, str]]:
        """Observations of training puzzles with what the weak team answers, without end. Of a
        `team` of one agent: how the weak one plays alone."""
        ...

    def baselines(self, seed: int, count: int) -> dict[str, int]:
        """By player by hand: how many of the first `count` test puzzles it solves. Among them are
        a random player, an oracle, and what a team can do by its tools alone."""
        ...

    def failure(self, episode: Episode, refused: int) -> str:
        """What kind of failure an episode is that ended unsolved, in a word or two; `refused` of
        its turns had an action refused."""
        ...
