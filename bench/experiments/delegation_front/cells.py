"""The trainings, their settings and their results."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from loopline.agents.records import Record
from loopline.bench.experiments.delegation_front.questions import Asked
from loopline.trainers.core.json_records import find_record
from loopline.trainers.router.prices import BIG_PRICES, SMALL_PRICES, Prices

RESULT = "result.json"
POLICY = "policy"
BIG, SMALL = "micro:llm", "micro:slm"

Decision = Literal["big", "small", "parts"]
DECISIONS: tuple[Decision, ...] = ("big", "small", "parts")
"""Decisions of a planner: answer the question itself, hand it whole to the small model, or split it
and hand out the parts (the workflow `delegate`)."""


class FrontSettings(Record):
    """Settings of every cell."""

    seeds: tuple[int, ...] = (1, 2, 3)
    dollar_weights: tuple[float, ...] = (0.0, 100.0, 300.0, 1000.0)
    """λ: loss of reward per dollar."""
    held_out: int = Field(default=300, ge=1)
    """Number of test questions, on which everything is measured."""
    train_questions: int = Field(default=300, ge=1)
    """Number of questions that a seed learns from; cascades learn their score from the same
    questions."""
    start_steps: int = Field(default=40, ge=1)
    """Steps of the planner's initial supervised training."""
    rounds: int = Field(default=50, ge=1)
    """Updates per training."""
    questions: int = Field(default=24, ge=1)
    """Questions per round."""
    group_size: int = Field(default=8, ge=2)
    """Sampled decisions per question."""
    rank: int = Field(default=8, ge=1)
    start_rate: float = Field(default=3e-3, gt=0)
    learning_rate: float = Field(default=8e-4, gt=0)
    entropy: float = Field(default=0.05, ge=0)
    """Weight of the entropy bonus, where a right answer has reward 1: without a bonus, the first
    decision that is right on most questions soon becomes the only one."""
    test_seed: int = 8_101
    """Seed of the held-out questions."""
    small_prices: tuple[float, float] = (SMALL_PRICES.prompt, SMALL_PRICES.completion)
    """US dollars per million prompt and completion tokens of the small model."""
    big_prices: tuple[float, float] = (BIG_PRICES.prompt, BIG_PRICES.completion)

    @property
    def prices(self) -> dict[str, Prices]:
        """Prices by pool."""
        return {"llm": Prices(*self.big_prices), "slm": Prices(*self.small_prices)}


class Cell(Record):
    """Answers to a seed's questions (seed 0: the held-out ones), a seed's initial planner, or its
    training."""

    kind: Literal["answers", "start", "trained"]
    seed: int
    dollar_weight: float | None = None
    """Weight of a dollar (λ) in the reward of a training; None for the other kinds."""

    @property
    def name(self) -> str:
        if self.kind == "answers":
            return "answers, held out" if self.seed == 0 else f"seed {self.seed}, answers"
        if self.dollar_weight is None:
            return f"seed {self.seed}, start"
        return f"seed {self.seed}, λ = {self.dollar_weight:g}"

    @property
    def needs(self) -> tuple[Cell, ...]:
        if self.kind != "trained":
            return ()
        return (Cell(kind="answers", seed=self.seed), Cell(kind="start", seed=self.seed))

    def folder(self, output: Path) -> Path:
        """Folder of the cell's result."""
        what = self.kind if self.dollar_weight is None else f"lambda-{self.dollar_weight:g}"
        return output / ("held-out" if self.seed == 0 else f"seed-{self.seed}") / what


class ModelAnswer(Record):
    """Result of one decision on a question."""

    right: bool
    dollars: float
    """US dollars of all calls, excluding the planner's decision."""
    text: str = ""
    """Text of the small model's answer, which `logprobs` describes; empty for other decisions."""
    logprobs: tuple[float, ...] = ()
    """Natural log-probabilities of the answer's tokens."""


class Answered(Record):
    """A question with the result of each decision on it."""

    question: Asked
    big: ModelAnswer
    small: ModelAnswer
    parts: ModelAnswer

    def by(self, decision: Decision) -> ModelAnswer:
        answers = {"big": self.big, "small": self.small, "parts": self.parts}
        return answers[decision]


class AnswerTable(Record):
    """Answers to all questions of a cell."""

    rows: tuple[Answered, ...]
    cpu_seconds: float


class RoundCurve(Record):
    """Measures of one round."""

    reward: float
    """Mean reward of the sampled decisions."""
    shares: tuple[float, ...]
    """Share of each decision among the samples; the rest were unreadable."""
    trained: int
    """Number of questions whose decisions got different rewards."""


class PlannerResult(Record):
    """Result of a planner, either initial or trained."""

    cell: Cell
    probabilities: tuple[tuple[float, ...], ...]
    """Probabilities of the decisions for each held-out question, in order, at temperature 1. The
    rest is the probability of any other text."""
    decision_dollars: tuple[float, ...]
    """US dollars of the big model for reading and deciding each question."""
    rounds: tuple[RoundCurve, ...] = ()
    cpu_seconds: float


def cells_of(settings: FrontSettings) -> list[Cell]:
    """Return all cells; those that others depend on come first."""
    begin = [Cell(kind="answers", seed=0)]
    for seed in settings.seeds:
        begin += [Cell(kind="answers", seed=seed), Cell(kind="start", seed=seed)]
    return begin + [
        Cell(kind="trained", seed=seed, dollar_weight=weight)
        for seed in settings.seeds
        for weight in settings.dollar_weights
    ]


def read_answers(cell: Cell, output: Path) -> AnswerTable | None:
    """Return the answers of a finished cell; None if it is not finished. Raises
    `UnreadableModel`."""
    return find_record(
        cell.folder(output) / RESULT, AnswerTable, "remove it, and run the command again"
    )


def read_planner(cell: Cell, output: Path) -> PlannerResult | None:
    """Return the result of a finished cell; None if it is not finished. Raises
    `UnreadableModel`."""
    return find_record(
        cell.folder(output) / RESULT, PlannerResult, "remove it, and run the command again"
    )


def is_finished(cell: Cell, output: Path) -> bool:
    """Whether the cell has a result. Raises `UnreadableModel`."""
    read = read_answers if cell.kind == "answers" else read_planner
    return read(cell, output) is not None
