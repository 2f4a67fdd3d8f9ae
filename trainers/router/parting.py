"""Labelled answers in parts: what a router learned of a question must not vouch for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from loopline.trainers.router.labelled import BadLabels, Labelled
from loopline.trainers.router.policy import Rows


def question_numbers(rows: Iterable[Labelled]) -> Rows:
    """[rows] The same number for rows of the same question, from 0."""
    numbers: dict[str, int] = {}
    return np.array(
        [numbers.setdefault(row.evidence.question, len(numbers)) for row in rows], dtype=np.int64
    )


def parts(questions: Rows, sizes: Sequence[int], generator: np.random.Generator) -> list[Rows]:
    """Rows in an order drawn at random, cut where `sizes` says (rows up to each cut, growing), or
    as near to it as leaves rows of one question together. `questions`: see `question_numbers`.

    Raises `BadLabels` where rows share questions and these are fewer than the parts: none is empty.
    """
    count, distinct = len(questions), len(np.unique(questions))
    if distinct == count:
        return np.split(generator.permutation(count).astype(np.int64), list(sizes))
    if distinct <= len(sizes):
        raise BadLabels(
            f"{distinct} different questions are too few for {len(sizes) + 1} parts: rows of one "
            "question stay together"
        )
    places = generator.permutation(int(questions.max()) + 1)
    order = np.argsort(places[questions], kind="stable").astype(np.int64)
    changes = np.flatnonzero(np.diff(questions[order])) + 1
    cuts: list[int] = []
    for left, size in zip(reversed(range(len(sizes))), sizes, strict=True):
        possible = changes[changes > (cuts[-1] if cuts else 0)]
        possible = possible[: len(possible) - left]  # the last ones are for the cuts to come
        cuts.append(int(possible[np.argmin(np.abs(possible - size))]))
    return np.split(order, cuts)
