"""An evaluation by another tool, in any format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from loopline.bench.errors import DataError, UsageError
from loopline.runtime.terminal.pluralize import format_count

MAX_SAMPLES = 2_000_000
NAMED = 5
"""Maximum number of samples or questions listed in a message."""


@dataclass(frozen=True)
class Tokens:
    """Tokens that one model read and wrote for one sample."""

    prompt: int = 0
    completion: int = 0


@dataclass(frozen=True)
class Sample:
    """One attempt at one question."""

    id: str
    """Id of the question: the same in every epoch, and in every evaluation of the same data."""
    epoch: int
    """Number of the epoch, from 1."""
    question: str
    target: str
    output: str | None
    """Answer of the model; None if there is none."""
    scores: Mapping[str, float]
    """Score by scorer, without missing and non-numeric scores."""
    tokens: Mapping[str, Tokens] = field(default_factory=dict[str, Tokens])
    """Tokens by model."""
    seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True)
class Evaluation:
    """One file of samples."""

    path: Path
    format: str
    """Format: `inspect` or `lm-eval`."""
    task: str
    model: str
    created: float
    """Time in seconds since 1970; 0 if the file has none."""
    samples: tuple[Sample, ...]
    lower_is_better: frozenset[str] = frozenset()
    """Scorers whose low scores are good."""
    notices: tuple[str, ...] = ()
    """Notes that readers of the figures need."""

    @property
    def scorers(self) -> tuple[str, ...]:
        """Scorers in order of appearance."""
        return tuple(dict.fromkeys(name for sample in self.samples for name in sample.scores))

    def scorer(self, name: str | None) -> str:
        """Return the scorer with this name, or the only one. Raises UsageError that lists the
        scorers, also if the scores are not shares."""
        names = self.scorers
        if not names:
            errors = [sample.error for sample in self.samples if sample.error]
            why = (
                f": {len(errors):,} of {format_count(len(self.samples), 'sample')} failed, the "
                f"first with {errors[0][:300]}"
                if errors
                else ""
            )
            raise UsageError(f"{self.path}: no sample has a score that is a number{why}")
        if name is None and len(names) > 1:
            raise UsageError(
                f"{self.path} has several scorers; choose one with --scorer: {'; '.join(names)}"
            )
        chosen_name = next(iter(names)) if name is None else name
        if chosen_name not in names:
            raise UsageError(
                f"--scorer: {self.path} has no {chosen_name!r}; it has: {'; '.join(names)}"
            )
        if chosen_name in self.lower_is_better:
            raise UsageError(
                f"{self.path}: a lower score of {chosen_name} is better, so it is not a share of "
                f"right answers; choose another scorer with --scorer: {'; '.join(names)}"
            )
        for sample in self.samples:
            score = sample.scores.get(chosen_name, 0.0)
            if not 0 <= score <= 1:
                raise UsageError(
                    f"{self.path}: {chosen_name} gives the question {sample.id} the score "
                    f"{score:g}; a paired comparison takes scores from 0 to 1; choose another "
                    f"scorer with --scorer: {'; '.join(names)}"
                )
        return chosen_name


def require_distinct(path: Path, samples: tuple[Sample, ...]) -> None:
    """Check the samples. Raises DataError for a file without samples, with too many, or with two
    samples of one question and epoch."""
    if not samples:
        raise DataError(f"{path}: the file contains no samples")
    seen_places: set[tuple[str, int]] = set()
    for sample in samples:
        if (sample.id, sample.epoch) in seen_places:
            raise DataError(
                f"{path}: epoch {sample.epoch} contains the question {sample.id!r} twice; its "
                "samples can't be paired"
            )
        seen_places.add((sample.id, sample.epoch))


def name_some(ids: tuple[str, ...]) -> str:
    """List the first ids, and note if there are more."""
    return ", ".join(ids[:NAMED]) + (", …" if ids[NAMED:] else "")


def object_at(value: Any, *path: str) -> dict[str, Any]:
    """Return the object below these keys of a JSON value; an empty one if there is none."""
    for key in path:
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def text_at(value: Any, key: str, default: str = "") -> str:
    """Return the text of a key, or the default."""
    text = object_at(value).get(key)
    return text if isinstance(text, str) else default


def number_at(value: Any, key: str) -> float:
    """Return the finite number of a key, or 0."""
    number = object_at(value).get(key)
    if isinstance(number, bool) or not isinstance(number, int | float):
        return 0.0
    return float(number) if abs(number) < 1e300 else 0.0
