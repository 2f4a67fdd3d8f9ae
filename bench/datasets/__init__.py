"""Data sets: items, their sources, and the selection of items to ask.

A data set is a function from `Request` to `Dataset`; `registry` finds it by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loopline.agents.environments.code import CodeProblem
from loopline.agents.environments.math_team import MathProblem
from loopline.agents.records import JsonObject
from loopline.bench.errors import UsageError
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.data.json_files import Skipped, summarize_skipped


@dataclass(frozen=True)
class Item:
    """One question. The gold answer stays in the bench and never reaches the bus."""

    id: str
    """Id that is stable across runs and samples, for example `gsm8k/test/17` (place in the file,
    from 0)."""
    question: str
    gold: str
    """Answer as plain text; numbers have no commas."""
    about: JsonObject = field(default_factory=dict)
    """Further facts (structure, number of steps), for grouping in reports."""


@dataclass(frozen=True)
class Request:
    """Selection of the items to ask."""

    split: str = "test"
    samples: int | None = None
    """Maximum number of items; None means all."""
    seed: int = 123
    data: Path | None = None
    choices: JsonObject = field(default_factory=dict)
    """Further choices of a data set; for puzzles the game, its size and its rules."""


@dataclass(frozen=True)
class Dataset:
    """The items that a benchmark asks, in the order of asking."""

    name: str
    split: str
    items: tuple[Item, ...]
    available: int
    """Number of items to choose from."""
    source: str
    """Source of the items, without machine-specific folders."""
    reference: JsonObject = field(default_factory=dict)
    """Facts that the judge needs in addition to the items."""
    problems: tuple[CodeProblem | MathProblem, ...] = ()
    """Problems with their hidden tests or gold answers, for the judge; neither the bus nor a
    manifest contains them."""


def skipped_summary(skipped: Sequence[Skipped]) -> str:
    """Describe the skipped records, for the end of a data set's `source`: the total and, for each
    reason, the number and the first places. Empty if all records were read."""
    from loopline.runtime.terminal.safe_text import sanitize

    if not skipped:
        return ""
    # A place may contain a name from the file, so it is sanitized.
    return (
        f" ({format_count(len(skipped), 'record')} left out: "
        f"{sanitize(summarize_skipped(skipped))})"
    )


def require_seed(seed: int) -> None:
    """Check a seed. Raises UsageError for one that NumPy's generator does not accept."""
    if not 0 <= seed < 2**32:
        raise UsageError(f"--seed must lie between 0 and {2**32 - 1}; got {seed}")


def sample(items: Sequence[Item], samples: int | None, seed: int) -> tuple[Item, ...]:
    """Draw `samples` items without replacement; return all in their own order if there are no more.

    The draw equals pandas' `DataFrame.sample(n, random_state=seed)`: the head of a permutation by
    NumPy's frozen Mersenne Twister. So 500 questions at seed 123 are the 500 questions of
    Delegate's published comparison, in its order, and a smaller sample is part of a larger one.
    """
    if samples is None or samples >= len(items):
        return tuple(items)
    if samples < 1:
        raise UsageError(f"--samples must be at least 1; got {samples}")
    require_seed(seed)
    import numpy as np

    order = np.random.RandomState(seed).permutation(len(items))[:samples]
    return tuple(items[int(at)] for at in order)


def best_constant(answers: Sequence[str | None], name: str | None = None) -> JsonObject:
    """Return the baseline for a data set's `reference`: the number of questions, and how many of
    them the most frequent answer solves. None stands for a question that no constant solves; `name`
    replaces an answer that must not be published."""
    ranking = Counter(answer for answer in answers if answer is not None).most_common(1)
    answer, right = ranking[0] if ranking else ("the same", 0)
    return {"instances": len(answers), "baselines": {name or f"always {answer[:80]}": right}}
