"""Several environments, each at several levels of difficulty, in one loop: how a round's puzzles
are distributed over them.

    --level "plan_path size=5" --level "sokoban size=6 boxes=1 weight=2"

By default the share of a level is proportional to its weight. With `--level-choice solve-rate` its
weight is multiplied by the chance that K samples are neither all solved nor all unsolved, 1 − pᴷ −
(1 − p)ᴷ, with the solve rate p of earlier rounds: only a mixed group shows which samples are
better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal

from pydantic import Field

from loopline.agents.environments.environment import AnyEnvironment, Difficulty
from loopline.agents.environments.registry import find
from loopline.agents.errors import InvalidOptions, PluginError, UnknownName
from loopline.agents.records import JsonObject, Record
from loopline.runtime.config.key_value_options import option_value

LevelChoice = Literal["weight", "solve-rate"]

LEAST = 0.1
"""Lower bound of a level's chance: a level that is too hard now is still played, so that the loop
notices when it no longer is."""
REMEMBERED = 0.8
"""Decay of a round's weight in the solve rate of the next one: policies change."""


class Level(Record):
    """One environment at one difficulty."""

    name: str
    """The level as it was written, without the weight."""
    source: str
    """Game, or generator of questions."""
    size: int | None = None
    difficulty: JsonObject = Field(default_factory=dict)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)


class LevelFacts(Record):
    """A round's results at one level."""

    share: float
    """Share of the round's puzzles planned for the level."""
    puzzles: int
    runs: int
    solved: int
    groups: int
    """Number of sealed groups."""
    trained: int

    @property
    def success(self) -> float:
        """Share of the runs that are solved."""
        return self.solved / max(self.runs, 1)


def read_level(text: str) -> Level:
    """Parse a level such as `sokoban size=6 boxes=1 weight=2`. Raises `InvalidOptions`."""
    source, *words = text.split()[:64] or [""]
    options: dict[str, object] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise InvalidOptions(
                f"--level {text!r}: {word!r} is not NAME=VALUE, as in "
                '--level "sokoban size=6 boxes=1 weight=2"'
            )
        options[name] = option_value(value)
    weight, size = options.pop("weight", 1.0), options.pop("size", None)
    if not source or "=" in source:
        raise InvalidOptions(f"--level {text!r}: name the environment first, as in sokoban size=6")
    if not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise InvalidOptions(f"--level {text!r}: weight must be a number above 0")
    if size is not None and not isinstance(size, int):
        raise InvalidOptions(f"--level {text!r}: size must be a whole number")
    name = " ".join([source, *(word for word in words if not word.startswith("weight="))])
    return Level.model_validate(
        {"name": name, "source": source, "size": size, "difficulty": options, "weight": weight}
    )


def read_levels(texts: Sequence[str]) -> tuple[Level, ...]:
    """Parse all levels. Raises `InvalidOptions`, also for a repeated one."""
    levels = tuple(map(read_level, texts))
    names = [level.name for level in levels]
    for name in names:
        if names.count(name) > 1:
            raise InvalidOptions(
                f"--level {name!r} is given twice: combine the two into one weight"
            )
    return levels


def game_of(level: Level, setting: JsonObject) -> tuple[AnyEnvironment, Difficulty]:
    """The game of a level, and the difficulty for its generator. Raises `InvalidOptions`."""
    try:
        game = find(level.source)
        return game, game.levels(level.size, level.difficulty, setting)
    except (UnknownName, PluginError, InvalidOptions) as error:
        raise InvalidOptions(f"--level {level.name!r}: {error}") from error


def solve_rate(earlier: Sequence[LevelFacts | None]) -> float:
    """Solve rate of a level from its rounds, the latest last; None for a round that did not play
    it. It is the mean of a Beta distribution with a uniform prior, in which each round weighs
    `REMEMBERED` times the next one. 0.5 for a level that has not been played."""
    solved = runs = 0.0
    for facts in earlier:
        solved, runs = REMEMBERED * solved, REMEMBERED * runs
        if facts is not None:
            solved, runs = solved + facts.solved, runs + facts.runs
    return (solved + 1) / (runs + 2)


def mixed_chance(rate: float, size: int) -> float:
    """Probability that `size` samples, each solved at `rate`, are neither all solved nor all
    unsolved."""
    return 1 - rate**size - (1 - rate) ** size


def level_shares(
    levels: Sequence[Level],
    choice: LevelChoice,
    size: int,
    history: Sequence[Mapping[str, LevelFacts]],
) -> dict[str, float]:
    """Share of each level in the next round's puzzles; the shares add up to 1. `size` is K,
    `history` the earlier rounds."""
    values = {
        level.name: level.weight
        * (
            1.0
            if choice == "weight"
            else max(
                LEAST,
                mixed_chance(solve_rate([facts.get(level.name) for facts in history]), size),
            )
        )
        for level in levels
    }
    total = math.fsum(values.values())
    return {name: value / total for name, value in values.items()}


def share_out(count: int, shares: Mapping[str, float], seed: str) -> dict[str, int]:
    """Divide `count` things by shares: each gets its part rounded down or up, and exactly its part
    on average over seeds (systematic sampling, Madow & Madow 1944)."""
    offset, reached, before = Random(seed).random(), 0.0, 0
    total, parts = math.fsum(shares.values()), dict[str, int]()
    for at, (name, share) in enumerate(shares.items(), start=1):
        reached += count * share / total
        # The last part ends at the count, regardless of rounding.
        end = count if at == len(shares) else min(count, math.floor(reached + offset))
        parts[name] = end - before
        before = end
    return parts
