"""Word problems in the style of grade-school mathematics, generated from a seed.

`generate("new_numbers", 100, seed=1)` returns 100 different problems with exact answers and solved
sub-tasks. The splits (see `splits`) are disjoint by construction.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from loopline.agents.environments.word_problems.problem import Equation, Link, SubTask, WordProblem
from loopline.agents.environments.word_problems.scheme import Scheme, Wording
from loopline.agents.environments.word_problems.schemes import schemes
from loopline.agents.environments.word_problems.splits import HELD_OUT, Split
from loopline.agents.environments.word_problems.story import EVERYTHING, Selection, tell_story

__all__ = [
    "HELD_OUT", "Equation", "Link", "Scheme", "Selection", "Split", "SubTask",
    "WordProblem", "Wording", "generate", "schemes", "stream",
]  # fmt: skip


def stream(split: Split | str, seed: int, wanted: Selection = EVERYTHING) -> Iterator[WordProblem]:
    """Yield problems of one split without end, the same ones for the same seed; repeats are
    possible."""
    rng = random.Random(f"{Split(split).value}:{seed}")
    while True:
        yield tell_story(rng, Split(split), wanted)


def generate(split: Split | str, n: int, seed: int) -> list[WordProblem]:
    """Return `n` different problems of one split. Raises ValueError for an unknown split or `n` <
    0."""
    if split not in set(Split):
        split_names = ", ".join(Split)
        raise ValueError(f"no split {str(split)!r}; there are: {split_names}")
    if n < 0:
        raise ValueError(f"cannot generate {n} problems")
    problems: dict[str, WordProblem] = {}
    source = stream(split, seed)
    while len(problems) < n:
        problem = next(source)
        problems.setdefault(problem.id, problem)
    return list(problems.values())
