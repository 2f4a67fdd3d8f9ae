"""The score: regularised least squares on scaled features and hashed words, for both models'
answers at once, with penalties chosen by leave-one-out cross-validation in closed form.

With a few hundred labels for thousands of words, the weights are computed in the dual: one matrix
of similarities between questions, K = (1 - r) D + r W, D of the numeric features and W of the
words. Given the eigenvectors of K, every penalty's leave-one-out predictions cost one product
(Rasmussen and Williams 2006, section 5.4.2). A logistic curve through those predictions turns the
score into a probability (Platt 1999), calibrated on left-out answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from loopline.agents.router.features import (
    HASH_BUCKETS,
    AnswerEvidence,
    hashed_words,
    numeric_features,
)
from loopline.agents.router.router import MAX_DEVIATION, Column, Head, Scorer

Floats = NDArray[np.float64]
Words = NDArray[np.float32]

WORD_SHARES = (0.0, 0.3, 0.6)
"""Candidates for r."""
PENALTIES = tuple(float(value) for value in np.geomspace(0.1, 1000, 17))
KNOTS = (1 / 3, 2 / 3)
"""Quantiles at which the slope of a feature with many values may change."""


@dataclass(frozen=True)
class Features:
    """Features of several answers: the raw numeric features by name, and the words as a matrix."""

    names: tuple[str, ...]
    numeric: Floats
    """Numeric features [answers, features]."""
    words: Words
    """Words [answers, buckets], for the buckets that occur in any answer."""
    buckets: NDArray[np.int64]
    likeness: Words | None = None
    """Products of the answers' words [answers, answers], if they were computed once for many
    fits."""

    def take(self, rows: NDArray[np.int64]) -> Features:
        """Select rows to predict for."""
        return Features(self.names, self.numeric[rows], self.words[rows], self.buckets)

    def to_learn(self, rows: NDArray[np.int64]) -> Features:
        """Select rows to learn from, with their part of `likeness`."""
        part = self.take(rows)
        if self.likeness is None:
            return part
        return replace(part, likeness=self.likeness[np.ix_(rows, rows)])

    def with_likeness(self) -> Features:
        """The same features, prepared for many fits to parts of them: 4 bytes for each pair of
        answers."""
        return replace(self, likeness=self.words @ self.words.T)


def extract(evidence: Sequence[AnswerEvidence], *, question_only: bool = False) -> Features:
    """The features of all answers; with `question_only`, as they are before any answer."""
    if question_only:
        evidence = [AnswerEvidence(entry.question, "") for entry in evidence]
    rows = [numeric_features(entry) for entry in evidence]
    names = tuple(numeric_features(AnswerEvidence("", "")))
    if question_only:
        names = tuple(name for name in names if name.startswith("question."))
    numeric = np.array([[row[name] for name in names] for row in rows], dtype=np.float64)
    hashed = [hashed_words(entry) for entry in evidence]
    buckets = np.array(sorted({bucket for row in hashed for bucket in row}), dtype=np.int64)
    place = np.zeros(HASH_BUCKETS, dtype=np.int64)
    place[buckets] = np.arange(len(buckets))
    words = np.zeros((len(hashed), len(buckets)), dtype=np.float32)
    for at, row in enumerate(hashed):
        words[at, place[list(row)]] = list(row.values())
    return Features(names, numeric.reshape(len(rows), len(names)), words, buckets)


def columns_of(features: Features, without: str | None = None) -> tuple[Column, ...]:
    """The scaling of the features; those that never vary are left out, and so are those whose name
    starts with `without`."""
    columns: list[Column] = []
    for name, values in zip(features.names, features.numeric.T, strict=True):
        spread = float(values.std())
        if spread < 1e-9 or (without is not None and name.startswith(without)):
            continue
        centre = float(values.mean())
        scaled = np.clip((values - centre) / spread, -MAX_DEVIATION, MAX_DEVIATION)
        knots: list[float] = []
        if len(np.unique(values)) > 5:
            knots = sorted({round(float(knot), 6) for knot in np.quantile(scaled, KNOTS)})
        columns.append(Column(feature=name, centre=centre, scale=spread, knots=tuple(knots)))
    return tuple(columns)


def expand(features: Features, columns: Sequence[Column]) -> Floats:
    """Expanded columns of all answers, [answers, columns], as `Column.expand` computes them."""
    place = {name: at for at, name in enumerate(features.names)}
    parts: list[Floats] = []
    for column in columns:
        values = features.numeric[:, place[column.feature]]
        scaled = np.clip((values - column.centre) / column.scale, -MAX_DEVIATION, MAX_DEVIATION)
        parts += [scaled, *(np.maximum(0.0, scaled - knot) for knot in column.knots)]
    return np.stack(parts, axis=1) if parts else np.zeros((len(features.numeric), 0))


@dataclass(frozen=True)
class Fit:
    """A learned score, and its leave-one-out predictions for each answer."""

    columns: tuple[Column, ...]
    biases: Floats
    """Biases [2]: small model, big model."""
    numeric: Floats
    """Weights [expanded columns, 2]."""
    words: Floats
    """Weights [buckets, 2]."""
    buckets: NDArray[np.int64]
    left_out: Floats
    """Leave-one-out predictions [answers, 2]."""
    word_share: float
    penalty: float

    def predict(self, features: Features) -> Floats:
        """Predictions [answers, 2] for the small model and the big one."""
        return (
            expand(features, self.columns) @ self.numeric
            + features.words @ self.words.astype(np.float32)
            + self.biases
        )

    def scorer(self, error_price: float) -> Scorer:
        """The score as data."""
        small, big = (
            Head(
                bias=float(self.biases[at]),
                numeric=tuple(map(float, self.numeric[:, at])),
                words={
                    int(bucket): float(weight)
                    for bucket, weight in zip(self.buckets, self.words[:, at], strict=True)
                    if abs(weight) > 1e-7
                },
            )
            for at in (0, 1)
        )
        return Scorer(columns=self.columns, small=small, big=big, error_price=error_price)


def learn(features: Features, right: Floats, without: str | None = None) -> Fit:
    """Fit the score. `right` [answers, 2] is 0 or 1, for the small model and the big one.
    `without`: prefix of the names of features that are not used."""
    count = len(right)
    columns = columns_of(features, without)
    numeric = expand(features, columns)
    middle = numeric.mean(axis=0)
    centred = numeric - middle
    width = max(1e-12, float((centred**2).sum() / count))
    likeness = features.likeness
    if likeness is None:
        likeness = features.words @ features.words.T
    # Minus the means of rows and columns, this is the matrix of words minus their means.
    sparse = likeness.astype(np.float64)
    means = sparse.mean(axis=0)
    sparse += means.mean() - means - means[:, None]
    word_width = max(1e-12, float(sparse.trace() / count))
    dense, sparse = centred @ centred.T / width, sparse / word_width
    biases = right.mean(axis=0)
    targets = right - biases
    best: tuple[float, float, float, Floats, Floats] | None = None
    for share in WORD_SHARES:
        values, vectors = np.linalg.eigh((1 - share) * dense + share * sparse)
        values = np.maximum(values, 0.0)
        turned, squares = vectors.T @ targets, vectors**2
        for penalty in PENALTIES:
            inverse = 1 / (values + penalty)
            dual = vectors @ (turned * inverse[:, None])
            # Each answer also moves the mean that it is compared with.
            left_out = targets - dual / (squares @ inverse)[:, None]
            error = float(((left_out - targets)[:, 0] ** 2).mean())
            if best is None or error < best[0] - 1e-12:
                best = (error, share, penalty, dual, left_out)
    assert best is not None
    _, share, penalty, dual, left_out = best
    numeric_weights = (1 - share) / width * (centred.T @ dual)
    word_middle = features.words.mean(axis=0, dtype=np.float64)
    word_weights = np.zeros((len(features.buckets), right.shape[1]))
    if share > 0:
        products = (features.words.T @ dual.astype(np.float32)).astype(np.float64)
        word_weights = share / word_width * (products - np.outer(word_middle, dual.sum(axis=0)))
    return Fit(
        columns=columns,
        biases=biases - middle @ numeric_weights - word_middle @ word_weights,
        numeric=numeric_weights,
        words=word_weights,
        buckets=features.buckets,
        left_out=left_out + biases,
        word_share=share,
        penalty=penalty,
    )


def logistic_curve(scores: Floats, right: Floats) -> tuple[float, float]:
    """Slope and intercept of the maximum-likelihood logistic curve through a score, by Newton's
    method with a small ridge, and with Platt's targets, which never reach 0 or 1."""
    positive = right.sum()
    targets = np.where(right > 0, (positive + 1) / (positive + 2), 1 / (len(right) - positive + 2))
    design = np.stack([scores, np.ones_like(scores)], axis=1)
    weights = np.zeros(2)
    for _ in range(50):
        chances = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        gradient = design.T @ (targets - chances) - 1e-3 * weights
        curvature = (design * (chances * (1 - chances))[:, None]).T @ design + 1e-3 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        weights = weights + np.clip(step, -10, 10)
        if np.abs(step).max() < 1e-9:
            break
    return float(weights[0]), float(weights[1])


def area_under_curve(scores: Floats, right: NDArray[np.bool_]) -> tuple[float, float]:
    """The chance that a right answer scores higher than a wrong one, and its standard error (Hanley
    and McNeil 1982). 0.5 and infinity if all are right or all wrong."""
    positive, negative = int(right.sum()), int((~right).sum())
    if positive == 0 or negative == 0:
        return 0.5, float("inf")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]
    area = float((ranks[right].sum() - positive * (positive + 1) / 2) / (positive * negative))
    first, second = area / (2 - area), 2 * area * area / (1 + area)
    spread = (
        area * (1 - area) + (positive - 1) * (first - area**2) + (negative - 1) * (second - area**2)
    ) / (positive * negative)
    return area, float(np.sqrt(max(spread, 1e-12)))
