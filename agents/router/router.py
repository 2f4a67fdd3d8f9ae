"""A learned router: it scores the evidence of an answer, and accepts or refuses the answer.

A router is data: weights of named features and of hashed words, thresholds, and the guarantee that
they were chosen for. It is read from JSON and computes with nothing but sums, so that a role can
hold it, and so that nobody runs code by reading one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from loopline.agents.records import Record
from loopline.agents.router.evidence import AnswerEvidence
from loopline.agents.router.features import (
    FEATURE_VERSION,
    HASH_BUCKETS,
    hashed_words,
    numeric_features,
)

MAX_DEVIATION = 4.0
"""Scaled features are kept within: text that nobody has seen the like of has no more weight."""


class Column(Record):
    """How a feature is scaled, and at which scaled values its slope may change."""

    feature: str
    centre: float
    scale: float = Field(gt=0)
    knots: tuple[float, ...] = ()

    def expand(self, value: float) -> tuple[float, ...]:
        """The scaled feature, then what of it lies beyond each knot."""
        scaled = max(-MAX_DEVIATION, min(MAX_DEVIATION, (value - self.centre) / self.scale))
        return (scaled, *(max(0.0, scaled - knot) for knot in self.knots))


class Head(Record):
    """A weighted sum of the features."""

    bias: float
    numeric: tuple[float, ...]
    """As many as the columns expand to."""
    words: dict[int, float]
    """Bucket → weight."""

    def score(self, numeric: tuple[float, ...], words: Mapping[int, float]) -> float:
        """The sum."""
        total = sum(w * x for w, x in zip(self.numeric, numeric, strict=True))
        return self.bias + total + sum(self.words.get(at, 0.0) * x for at, x in words.items())


class Scorer(Record):
    """Expected results of both models for one question."""

    columns: tuple[Column, ...]
    small: Head
    """Whether the small model's answer is right, about 0 to 1."""
    big: Head
    """Whether the big model's would be."""
    error_price: float = Field(ge=0)
    """What a wrong answer that is accepted weighs, in answers that the big model would have
    saved."""

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
        """Both sums."""
        numeric = tuple(
            value for column in self.columns for value in column.expand(features[column.feature])
        )
        return self.small.score(numeric, words), self.big.score(numeric, words)

    def score(self, features: Mapping[str, float], words: Mapping[int, float]) -> float:
        """A higher score makes the small answer more likely to be accepted."""
        small, big = self.heads(features, words)
        return combine(small, big, self.error_price)


def combine(small: float, big: float, error_price: float) -> float:
    """The score of an answer from what is expected of both models."""
    return ((1 + error_price) * small - big) / (1 + error_price)


class Guarantee(Record):
    """What was promised of a router, and on which evidence: "the share of all questions whose small
    answer is accepted and wrong is at most alpha, with probability 1 - delta"."""

    alpha: float = Field(gt=0, lt=1)
    delta: float = Field(gt=0, lt=1)
    calibration: int = Field(ge=0)
    """Questions that the threshold was calibrated on, and that nothing else was learned from."""
    accepted: int = Field(ge=0)
    wrong: int = Field(ge=0)
    """Of the accepted ones."""
    allowed: int = Field(ge=-1)
    """Accepted and wrong ones that the test allows; -1: too few questions for any."""
    test: Literal["fixed sequence, exact binomial"] = "fixed sequence, exact binomial"


class Router(Record):
    """A file of `train router`."""

    kind: Literal["router"] = "router"
    feature_version: int
    guarantee: Guarantee
    scorer: Scorer
    threshold: float | None
    """The least score that is accepted; None: nothing is."""
    gate: Scorer | None = None
    """The same of the question alone; None: the small model is asked every question."""
    gate_threshold: float = 0.0
    """The least score of the gate at which asking the small model first is worth its price."""
    slope: float
    intercept: float
    """Of the logistic curve that turns the small head into a probability."""
    trained_on: int = Field(ge=0)
    """Questions that the score was learned from."""
    auc: float = Field(ge=0, le=1)
    """Of the score for right answers, on the calibration questions."""
    pays: bool
    """Whether it saved money at equal accuracy on the questions that it was learned from."""
    needs_samples: bool = False
    """It reads further samples of the small model, and accepts nothing without any."""
    alarms: int = Field(default=0, ge=0)
    """How often audited runs have shown that the bound was broken; each time the threshold rose."""
    watched_after: str = ""
    """The last run that the present threshold was chosen with: later ones are watched."""

    @model_validator(mode="after")
    def _of_this_version(self) -> Router:
        if self.feature_version != FEATURE_VERSION:
            raise ValueError(
                f"its features have version {self.feature_version}, these have {FEATURE_VERSION}: "
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
        """Whether the answer is accepted, and the numbers behind it."""
        features, words = numeric_features(evidence), hashed_words(evidence)
        small, big = self.scorer.heads(features, words)
        score = combine(small, big, self.scorer.error_price)
        probability = logistic(self.slope * small + self.intercept)
        readable = bool(evidence.samples) or not self.needs_samples
        accepted = readable and self.threshold is not None and score >= self.threshold
        return Judgement(score=score, probability=probability, accepted=accepted)


class Judgement(Record):
    """What a router says of one answer."""

    score: float
    probability: float
    """That the answer is right, calibrated."""
    accepted: bool


def logistic(value: float) -> float:
    """1 / (1 + exp(-value)), without overflow."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    return math.exp(value) / (1 + math.exp(value))
