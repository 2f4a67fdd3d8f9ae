"""The stream's questions: word problems with one link and two operations, whose scheme no training
has shown, from the generator's held-out structures. Served questions and the small model's held-out
questions never overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from loopline.agents.environments.word_problems import (
    Scheme,
    Selection,
    Split,
    WordProblem,
    schemes,
    stream,
)
from loopline.trainers.distill.escalations import question_key

OPERATIONS = 2
"""Maximum number of operations in a question."""


@dataclass(frozen=True)
class Questions:
    """Questions of one seed."""

    stream: tuple[WordProblem, ...]
    held_out: tuple[WordProblem, ...]

    @property
    def answers(self) -> dict[str, str]:
        """Right answers by question."""
        return {problem.prompt: problem.answer for problem in (*self.stream, *self.held_out)}


def draw_questions(seed: int, count: int, held_out: int) -> Questions:
    """Draw the questions: the same for the same seed and numbers."""
    source = stream(Split.UNSEEN_STRUCTURES, seed, Selection(chains=_is_short))
    by_question: dict[str, WordProblem] = {}
    while len(by_question) < count + held_out:
        problem = next(source)
        by_question.setdefault(question_key(problem.prompt), problem)
    problems = tuple(by_question.values())
    return Questions(problems[held_out:], problems[:held_out])


def kind_of(problem: WordProblem) -> str:
    """Return the scheme that is new in a question."""
    return next(name for name in problem.structure.split("+") if name in _new_schemes())


def _is_short(chain: Sequence[Scheme]) -> bool:
    links = [link for link in chain if link.parts]
    return len(links) == 1 and sum(len(part.operations) for part in links[0].parts) <= OPERATIONS


@cache
def _new_schemes() -> frozenset[str]:
    return frozenset(scheme.name for scheme in schemes() if scheme.held_out)
