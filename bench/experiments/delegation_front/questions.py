"""A mixture of questions, some of which the small model can answer: pieces of word problems, short
word problems, and long ones. Only a question's words show its kind."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Literal

from loopline.agents.environments.word_problems import Split, WordProblem, stream
from loopline.agents.records import Record

Kind = Literal["piece", "short", "long"]
KINDS: tuple[Kind, ...] = ("piece", "short", "long")
"""Kind of a question: a sub-task as it is handed out, a problem with one link, or one with
several."""


class Asked(Record):
    """One question."""

    kind: Kind
    prompt: str
    answer: str
    """Right answer."""


def held_out_questions(seed: int, count: int) -> list[Asked]:
    """Draw known stories with numbers that no training has; the same for every training."""
    return _draw(Split.NEW_NUMBERS, seed, count, ())


def training_questions(seed: int, count: int, held_out: Collection[Asked]) -> list[Asked]:
    """Draw training questions. None is held out, although a short piece may occur in both
    splits."""
    return _draw(Split.TRAIN, seed, count, {question.prompt for question in held_out})


def _draw(split: Split, seed: int, count: int, without: Collection[str]) -> list[Asked]:
    """Draw `count` different questions, the same number of each kind."""
    problems, rng = stream(split, seed), random.Random(f"delegation front:{seed}")
    drawn: dict[str, Asked] = {}
    while len(drawn) < count:
        kind = KINDS[len(drawn) % len(KINDS)]
        question = _of_kind(kind, next(problems), rng)
        if question is not None and question.prompt not in without:
            drawn.setdefault(question.prompt, question)
    return list(drawn.values())


def _of_kind(kind: Kind, problem: WordProblem, rng: random.Random) -> Asked | None:
    """Return a question of the kind; None if the problem has none."""
    if kind == "piece":
        part = rng.choice(problem.sub_tasks)
        return Asked(kind=kind, prompt=part.problem, answer=str(part.answer))
    if (problem.steps == 1) != (kind == "short"):
        return None
    return Asked(kind=kind, prompt=problem.prompt, answer=problem.answer)
