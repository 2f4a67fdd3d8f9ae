"""A learned router: it scores the evidence of an answer, and accepts or refuses the answer.

A router is data: weights of named features and of hashed words, thresholds, and the guarantee that
they were chosen for. It is read from JSON and computes only sums, so a role can hold it, and
reading one never runs code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from loopline.agents.records import Record
from loopline.agents.router.features import (
    FEATURE_VERSION,
    HASH_BUCKETS,
    AnswerEvidence,
    hashed_words,
    numeric_features,
)

MAX_DEVIATION = 4.0
"""Limit of scaled features, so that unusual text has no more weight."""


class Column(Record):
    """Scale of a feature, and the scaled values at which its slope may change."""

    feature: str
    centre: float
    scale: float = Field(gt=0)
    knots: tuple[float, ...] = ()

    def expand(self, value: float) -> tuple[float, ...]:
        """The scaled feature, then its excess beyond each knot."""
        scaled = max(-MAX_DEVIATION, min(MAX_DEVIATION, (value - self.centre) / self.scale))
        return (scaled, *(max(0.0, scaled - knot) for knot in self.knots))


class Head(Record):
    """A weighted sum of the features."""

    bias: float
    numeric: tuple[float, ...]
    """Weights of the expanded columns."""
    words: dict[int, float]
    """Weights of hashed words, by bucket."""

    def score(self, numeric: tuple[float, ...], words: Mapping[int, float]) -> float:
        """Weighted sum of the features."""
        total = sum(w * x for w, x in zip(self.numeric, numeric, strict=True))
        return self.bias + total + sum(self.words.get(at, 0.0) * x for at, x in words.items())


class Scorer(Record):
    """Expected results of both models for one question."""

    columns: tuple[Column, ...]
    small: Head
    """Estimate of whether the small model's answer is right, about 0 to 1."""
    big: Head
    """Estimate of whether the big model's answer would be right."""
    error_price: float = Field(ge=0)
    """Weight of an accepted wrong answer, in answers that the big model would have got right."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Scorer:
        width = sum(1 + len(column.knots) for column in self.columns)
        for head in (self.small, self.big):
            if len(head.numeric) != width:
                raise ValueError(f"{len(head.numeric)} weights for {width} columns")
            if any(not 0 <= bucket < HASH_BUCKETS for bucket in head.words):
                raise ValueError("a word outside the buckets")
        return self

    def heads(
        self, features: Mapping[str, float], words: Mapping[int, float]
    ) -> tuple[float, float]:
        """Sums of both heads."""
        numeric = tuple(
            value for column in self.columns for value in column.expand(features[column.feature])
        )
        return self.small.score(numeric, words), self.big.score(numeric, words)

    def score(self, features: Mapping[str, float], words: Mapping[int, float]) -> float:
        """Score of an answer: the higher, the more likely the small answer is accepted."""
        small, big = self.heads(features, words)
        return combine(small, big, self.error_price)


def combine(small: float, big: float, error_price: float) -> float:
    """Score of an answer from the expected results of both models."""
    return ((1 + error_price) * small - big) / (1 + error_price)


class Guarantee(Record):
    """Guarantee of a router, and its evidence: "the share of all questions whose small answer is
    accepted and wrong is at most alpha, with probability 1 - delta"."""

    alpha: float = Field(gt=0, lt=1)
    delta: float = Field(gt=0, lt=1)
    calibration: int = Field(ge=0)
    """Number of questions that the threshold was calibrated on; they were used for nothing else."""
    accepted: int = Field(ge=0)
    wrong: int = Field(ge=0)
    """Number of wrong answers among the accepted ones."""
    allowed: int = Field(ge=-1)
    """Number of accepted and wrong answers that the test allows; -1: too few questions for any."""
    by_feedback: bool = False
    """Whether feedback stated the right answer for each calibration question. Then the watch counts
    no run before its feedback has come: until then, the big model's mistakes look like the small
    model's."""
    test: Literal["fixed sequence, exact binomial"] = "fixed sequence, exact binomial"


class Router(Record):
    """A file of `train router`."""

    kind: Literal["router"] = "router"
    feature_version: int
    guarantee: Guarantee
    scorer: Scorer
    threshold: float | None
    """Minimum score that is accepted; None: nothing is."""
    gate: Scorer | None = None
    """Scorer of the question alone; None: every question goes to the small model first."""
    gate_threshold: float = 0.0
    """Minimum score of the gate at which asking the small model first is worth its price."""
    slope: float
    intercept: float
    """Intercept of the logistic curve that turns the small head into a probability."""
    trained_on: int = Field(ge=0)
    """Number of questions that the score was learned from."""
    auc: float = Field(ge=0, le=1)
    """Area under the curve of the score for right answers, on the calibration questions."""
    pays: bool
    """Whether it saved money at equal accuracy on the questions that it was learned from."""
    needs_samples: bool = False
    """Whether it reads further samples of the small model, and accepts nothing without them."""
    alarms: int = Field(default=0, ge=0)
    """Number of times that audited runs have shown a broken bound; each time, the threshold was
    raised."""
    watched_after: str = ""
    """Id of the last run that the present threshold was chosen with: later runs are watched."""

    @model_validator(mode="after")
    def _check_features(self) -> Router:
        if self.feature_version != FEATURE_VERSION:
            raise ValueError(
                f"its features have version {self.feature_version}, not {FEATURE_VERSION}: "
                "train it again with `train router`"
            )
        names = numeric_features(AnswerEvidence("", ""))
        for column in self.scorer.columns:
            if column.feature not in names:
                raise ValueError(f"there is no feature {column.feature!r}")
        return self

    def asks_small(self, question: str) -> bool:
        """Whether the small model is worth asking at all."""
        if self.threshold is None or self.gate is None:
            return self.threshold is not None
        alone = AnswerEvidence(question, "")
        score = self.gate.score(numeric_features(alone), hashed_words(alone))
        return score >= self.gate_threshold

    def judge(self, evidence: AnswerEvidence) -> Judgement:
        """Whether the answer is accepted, and the numbers behind the verdict."""
        features, words = numeric_features(evidence), hashed_words(evidence)
        small, big = self.scorer.heads(features, words)
        score = combine(small, big, self.scorer.error_price)
        probability = logistic(self.slope * small + self.intercept)
        readable = bool(evidence.samples) or not self.needs_samples
        accepted = readable and self.threshold is not None and score >= self.threshold
        return Judgement(score=score, probability=probability, accepted=accepted)


class Judgement(Record):
    """Verdict of a router on one answer."""

    score: float
    probability: float
    """Calibrated probability that the answer is right."""
    accepted: bool


def logistic(value: float) -> float:
    """1 / (1 + exp(-value)), without overflow."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    return math.exp(value) / (1 + math.exp(value))
