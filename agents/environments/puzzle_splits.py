"""Splits of puzzles: a hash of the content decides which puzzles are kept away from training, so no
list is needed and two machines agree. Generators draw until a puzzle falls into the requested
split. In the published code, test puzzles were training puzzles with other seeds."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TypeVar

_PARTS = 8
"""Number of parts: two eighths are for tests, one for choosing settings, the rest for training.
This leaves enough of the 288 Sudoku grids of 4 x 4 in each split."""

_PATIENCE = 2_000
"""Consecutive repeats after which a generator is considered exhausted."""


class Split(StrEnum):
    """Disjoint parts of all puzzles."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


def content_hash(content: str) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(content.encode()).hexdigest()


def split_of(content: str) -> Split:
    """Return the split of a puzzle, by the content that identifies it."""
    part = int(content_hash(content)[:8], 16) % _PARTS
    if part < 2:
        return Split.TEST
    return Split.VALIDATION if part == 2 else Split.TRAIN


def as_split(name: Split | str) -> Split:
    """Return the split with this name. Raises ValueError that lists the available names."""
    if name not in set(Split):
        raise ValueError(f"no split {str(name)!r}; there are: {', '.join(Split)}")
    return Split(name)


P = TypeVar("P")


def draw_puzzles(
    game: str, split: Split, seed: int, draw: Callable[[random.Random], P | None], tries: int
) -> Iterator[P]:
    """Yield puzzles without end: the same ones for the same game, split and seed. `draw` returns
    `None` if a random draw yields no puzzle of the split. Raises ValueError after `tries` such
    draws in a row."""
    rng = random.Random(f"{game}:{split.value}:{seed}")
    failures = 0
    while True:
        puzzle = draw(rng)
        if puzzle is not None:
            failures = 0
            yield puzzle
        elif (failures := failures + 1) > tries:
            raise ValueError(
                f"{tries} attempts in a row made no {game} puzzle: the difficulty allows none"
            )


def take_distinct(source: Iterator[P], count: int, key: Callable[[P], str]) -> list[P]:
    """Return the first `count` puzzles with different keys; a longer list starts with the shorter
    one.

    Raises ValueError for a negative count, or if the source only repeats itself.
    """
    if count < 0:
        raise ValueError(f"cannot generate {count} puzzles")
    puzzles_by_key: dict[str, P] = {}
    repeats = 0
    while len(puzzles_by_key) < count:
        puzzle = next(source)
        before = len(puzzles_by_key)
        puzzles_by_key.setdefault(key(puzzle), puzzle)
        repeats = 0 if len(puzzles_by_key) > before else repeats + 1
        if repeats > _PATIENCE:
            raise ValueError(
                f"only {len(puzzles_by_key)} of {count} different puzzles were found; make the "
                "puzzles "
                "larger or the difficulty wider"
            )
    return list(puzzles_by_key.values())
