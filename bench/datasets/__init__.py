"""Data sets: what an item is, where items come from, which of them are asked.

A data set is a function from a `Request` to a `Dataset`; it registers under the entry point group
`switchyard.datasets`, so that a package of the user's adds one without touching this repository.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

from agents.environments.code import CodeProblem
from agents.environments.math_team import MathProblem
from agents.records import JsonObject
from bench.errors import UsageError

GROUP = "switchyard.datasets"


@dataclass(frozen=True)
class Item:
    """One question. The gold answer stays in the bench: it never goes on the bus."""

    id: str
    """Stable across runs and samples, for example `gsm8k/test/17` (place in the file, from 0)."""
    question: str
    gold: str
    """A number as plain text, commas stripped."""
    about: JsonObject = field(default_factory=dict)
    """Whatever else is known (structure, number of steps), for grouping in a report."""


@dataclass(frozen=True)
class Request:
    """Which items are wanted."""

    split: str = "test"
    samples: int | None = None
    """None is all."""
    seed: int = 123
    data: Path | None = None
    choices: JsonObject = field(default_factory=dict)
    """What else a data set lets one choose: of puzzles the game, its size, how it is played."""


@dataclass(frozen=True)
class Dataset:
    """The items that a benchmark asks, in the order in which it asks them."""

    name: str
    split: str
    items: tuple[Item, ...]
    available: int
    """How many items there were to choose from."""
    source: str
    """Where they came from, without machine-specific folders."""
    reference: JsonObject = field(default_factory=dict)
    """What the judge needs beside the items."""
    problems: tuple[CodeProblem | MathProblem, ...] = ()
    """With what decides them, for the judge: neither on the bus nor in a manifest."""


Loader = Callable[[Request], Dataset]


def load(name: str, request: Request) -> Dataset:
    """The items of a registered data set. Raises `bench.errors.DataError`."""
    return loader(name)(request)


def loader(name: str) -> Loader:
    """The loader of that name: those of this repository, then entry points."""
    if name == "gsm8k":
        from bench.datasets import gsm8k

        return gsm8k.load
    if name == "wordproblems":
        from bench.datasets import wordproblems

        return wordproblems.load
    if name in ("aime24", "aime25"):
        from bench.datasets import competition_math

        return partial(competition_math.load_aime, 2000 + int(name[-2:]))
    if name == "puzzles":
        from bench.puzzles import instances

        return instances.load
    if name == "code":
        from bench.teams import code_problems

        return code_problems.load
    if name == "math":
        from bench.teams import math_problems

        return math_problems.load
    from bench.tools.suites import SUITES

    if name in SUITES:
        return SUITES[name].load
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            found: Loader = entry.load()
            return found
    known = ", ".join(names())
    raise UsageError(f"there is no data set {name!r}; there are: {known}")


def names() -> list[str]:
    """Every registered data set."""
    from bench.tools.suites import SUITES

    return sorted(
        {"aime24", "aime25", "code", "gsm8k", "math", "puzzles", "wordproblems", *SUITES}
        | {entry.name for entry in entry_points(group=GROUP)}
    )


def sample(items: Sequence[Item], samples: int | None, seed: int) -> tuple[Item, ...]:
    """`samples` items drawn without replacement; all, in their own order, when not fewer.

    The draw is that of pandas' `DataFrame.sample(n, random_state=seed)`: the head of a permutation
    by NumPy's frozen Mersenne Twister. So 500 questions at seed 123 are the 500 questions of
    Delegate's published comparison, in its order, and a smaller sample is a part of a larger one.
    """
    if samples is None or samples >= len(items):
        return tuple(items)
    if samples < 1:
        raise UsageError(f"--samples must be at least 1; got {samples}")
    import numpy as np

    order = np.random.RandomState(seed).permutation(len(items))[:samples]
    return tuple(items[int(at)] for at in order)
