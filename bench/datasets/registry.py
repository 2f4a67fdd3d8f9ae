"""Data sets by name: those of this repository, and those of a user's package that registers under
the entry point group `loopline.datasets`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points

from loopline.bench.datasets import Dataset, Request
from loopline.bench.errors import UsageError

GROUP = "loopline.datasets"
Loader = Callable[[Request], Dataset]


def load(name: str, request: Request) -> Dataset:
    """The items of a registered data set. Raises `loopline.bench.errors.DataError`."""
    return loader(name)(request)


def loader(name: str) -> Loader:
    """The loader of that name: those of this repository, then entry points."""
    if name == "gsm8k":
        from loopline.bench.datasets import gsm8k

        return gsm8k.load
    if name == "wordproblems":
        from loopline.bench.datasets import wordproblems

        return wordproblems.load
    if name in ("aime24", "aime25"):
        from loopline.bench.datasets import aime

        return partial(aime.load, 2000 + int(name[-2:]))
    if name == "puzzles":
        from loopline.bench.puzzles import instances

        return instances.load
    if name == "code":
        from loopline.bench.teams import code_problems

        return code_problems.load
    if name == "math":
        from loopline.bench.teams import math_problems

        return math_problems.load
    from loopline.bench.tools.suites import SUITES

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
    from loopline.bench.tools.suites import SUITES

    return sorted(
        {"aime24", "aime25", "code", "gsm8k", "math", "puzzles", "wordproblems", *SUITES}
        | {entry.name for entry in entry_points(group=GROUP)}
    )
