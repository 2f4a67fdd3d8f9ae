"""Sequential halving: the best of several candidates, found with a fixed number of runs.

Every round each candidate that is left plays the same new questions; the worse half goes. With n
candidates there are ⌈log₂ n⌉ rounds, and each may use an equal share of the runs (Karnin, Koren and
Somekh 2013). Unlike there, what earlier rounds showed is kept: all that are left have played the
same questions, so their counts can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple


class Round(NamedTuple):
    """One round."""

    arms: int
    """Candidates that play."""
    questions: int
    """New ones, for each of them."""


def rounds(arms: int, runs: int) -> tuple[Round, ...]:
    """The rounds for that many candidates with at most `runs` runs; none for one candidate.

    Raises ValueError where a round would have no question.
    """
    count = math.ceil(math.log2(arms)) if arms > 1 else 0
    if runs < arms * count:
        raise ValueError(f"{arms} candidates need at least {arms * count} runs; got {runs}")
    plan: list[Round] = []
    remaining = arms
    for _ in range(count):
        plan.append(Round(remaining, runs // (count * remaining)))
        remaining = survivor_count(remaining)
    return tuple(plan)


def survivor_count(arms: int) -> int:
    """Number of candidates that continue, out of this many."""
    return math.ceil(arms / 2)


def rank_candidates(solved: Mapping[str, int]) -> list[str]:
    """Candidates from the best to the worst, by questions solved of the same number; of equal ones
    the one that was there first, so that the prompt in force gives way to a better one alone."""
    return sorted(solved, key=lambda label: -solved[label])
