"""Generated word problems as instances (`loopline.agents.environments.word_problems`).

Wordings keep test problems away from training: every sentence of a test problem has a wording that
no training problem has, and the same holds for the problems used to choose settings. The schemes,
and therefore the calculations, are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Self

from pydantic import Field, model_validator

from loopline.agents.environments import word_problems
from loopline.agents.environments.puzzle_splits import Split, as_split, take_distinct
from loopline.agents.environments.word_problem_team.instance import (
    WordProblemInstance,
    WordProblemSetting,
    split_of_wording,
)
from loopline.agents.environments.word_problems import Scheme, Selection, Wording
from loopline.agents.environments.word_problems import Split as Told
from loopline.agents.environments.word_problems.story import DOMAINS
from loopline.agents.records import Record

_MOST = 7
"""Maximum number of calculations in a solution; longer ones are rare."""
_TRIES = 10_000
"""Maximum consecutive unsuitable stories; then the difficulty is considered impossible."""


class Difficulty(Record):
    """Difficulty and setting of instances."""

    equations: tuple[int, int] = (1, 4)
    """Minimum and maximum number of calculations in the solution."""
    domains: tuple[str, ...] = Field(default=(), max_length=len(DOMAINS))
    """Subjects of the stories: `things`, `money`, …; empty means all."""
    setting: WordProblemSetting = WordProblemSetting()

    @model_validator(mode="after")
    def _check_possible(self) -> Self:
        low, high = self.equations
        if not 1 <= low <= high <= _MOST:
            raise ValueError(f"equations must be from 1 to {_MOST}, not {low} to {high}")
        strange = next((name for name in self.domains if name not in DOMAINS), None)
        if strange is not None:
            raise ValueError(f"no domain {strange!r}; there are: {', '.join(DOMAINS)}")
        return self

    def allows(self, chain: Sequence[Scheme]) -> bool:
        """Whether a story of these links has this difficulty."""
        steps = sum(len(part.operations) for link in chain for part in link.parts)
        low, high = self.equations
        return low <= steps <= high and (not self.domains or chain[0].domain in self.domains)


def stream(
    split: Split | str,
    seed: int,
    difficulty: Difficulty | None = None,
    wordings: Callable[[Wording], bool] = lambda wording: True,
) -> Iterator[WordProblemInstance]:
    """Yield instances of one split without end, only with the split's wordings that `wordings`
    accepts; the same arguments yield the same instances. Raises ValueError for an unknown split,
    and while drawing if nothing fits."""
    effective_difficulty, wanted = difficulty or Difficulty(), as_split(split)
    return _stream(wanted, seed, effective_difficulty, wordings)


def _stream(
    split: Split, seed: int, effective_difficulty: Difficulty, wordings: Callable[[Wording], bool]
) -> Iterator[WordProblemInstance]:
    attempts = 0

    def fits(chain: Sequence[Scheme]) -> bool:
        nonlocal attempts
        attempts += 1
        if attempts > _TRIES:
            raise ValueError(
                f"{_TRIES} attempts in a row made no word problem: the difficulty allows none"
            )
        return effective_difficulty.allows(chain)

    wording_split = Told.UNSEEN_WORDINGS if split is Split.TEST else Told.TRAIN
    selection = Selection(
        fits, lambda wording: split_of_wording(wording) is split and wordings(wording)
    )
    for problem in word_problems.stream(wording_split, seed, selection):
        attempts = 0
        yield WordProblemInstance.of(problem, effective_difficulty.setting)


def instances(
    split: Split | str, seed: int, count: int, difficulty: Difficulty | None = None
) -> list[WordProblemInstance]:
    """Return `count` different instances of one split. Raises ValueError."""
    return take_distinct(stream(split, seed, difficulty), count, lambda instance: instance.id)
