"""The compared rules: the trained planner for each λ, the initial planner at several settings,
cascades at several thresholds, and the same decision for every question.

Cascades ask the small model first and always pay for its answer. They threshold the mean
log-probability of its tokens, or the score that `train router` learns from the planner's training
questions: the probability that the small answer is right minus the probability that the big one is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from loopline.agents.router.features import AnswerEvidence
from loopline.bench.errors import OutputError
from loopline.bench.experiments.delegation_front.cells import (
    DECISIONS,
    Answered,
    AnswerTable,
    Cell,
    Decision,
    FrontSettings,
    PlannerResult,
    read_answers,
    read_planner,
)
from loopline.bench.experiments.delegation_front.front import Floats, Rule
from loopline.trainers.router.fitting import extract, learn
from loopline.trainers.router.policy import Rows

T = TypeVar("T")

OFFSETS = (-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0)
"""Offsets added to the log-odds of handing a question over whole, before the likeliest decision is
chosen: the settings of the initial planner."""
THRESHOLDS = 9
"""Number of thresholds per kind of cascade, at quantiles of the thresholded score."""
_NOTHING = -1e3
TITLES: dict[Decision, str] = {
    "big": "the big model alone",
    "small": "the small model alone",
    "parts": "delegation of every question",
}


@dataclass(frozen=True)
class Rules:
    """The compared rules, by family."""

    trained: dict[float, Rule]
    """Rule of the trained planner, by λ."""
    decisions: dict[float, Floats]
    """Share of each decision, by λ."""
    untrained: list[Rule]
    cascades: list[Rule]
    """Cascades by log-probability."""
    scored: list[Rule]
    """Cascades by a learned score."""
    alone: list[Rule]


def rules_of(settings: FrontSettings, output: Path) -> Rules:
    """Return the rules of finished cells. Raises `OutputError` for a cell that is not finished."""
    rows = _answers(0, output).rows
    right, cost = _columns(rows)
    seeds = settings.seeds

    def for_all_seeds(name: str, right: Floats, cost: Floats) -> Rule:
        return Rule(name, np.tile(right, (len(seeds), 1)), np.tile(cost, (len(seeds), 1)))

    alone = [
        for_all_seeds(TITLES[decision], right[:, at], cost[:, at])
        for at, decision in enumerate(DECISIONS)
    ]
    results = {
        weight: [_planner(seed, weight, output) for seed in seeds]
        for weight in settings.dollar_weights
    }
    begins = [_planner(seed, None, output) for seed in seeds]
    whole = [rule for rule in alone if rule.name != TITLES["parts"]]
    scores = [_scores(_answers(seed, output).rows, rows) for seed in seeds]
    logprobs = np.array([_mean(entry.small.logprobs) for entry in rows])
    return Rules(
        trained={
            weight: planned(f"λ = {weight:g}", planners, right, cost)
            for weight, planners in results.items()
        },
        decisions={
            weight: np.mean([_taken(planner).mean(axis=0) for planner in planners], axis=0)
            for weight, planners in results.items()
        },
        untrained=[*_settings(begins, right, cost), *alone],
        cascades=[*_cascades("log-probability", [logprobs] * len(seeds), right, cost), *whole],
        scored=[*_cascades("learned score", scores, right, cost), *whole],
        alone=alone,
    )


def planned(
    name: str, planners: Sequence[PlannerResult], right: Floats, cost: Floats, offset: float = 0.0
) -> Rule:
    """Return the rule that follows the planners' likeliest decisions, including the cost of
    deciding. `right` and `cost` have the shape (questions, decisions); `offset` is added to the
    log-odds of `small`."""
    choices = np.stack([_taken(planner, offset) for planner in planners])
    paid = np.array([planner.decision_dollars for planner in planners])
    return Rule(name, (choices * right).sum(-1), (choices * cost).sum(-1) + paid)


def _settings(begins: Sequence[PlannerResult], right: Floats, cost: Floats) -> list[Rule]:
    rules = [
        planned(f"log-odds of handing over {offset:+g}", begins, right, cost, offset)
        for offset in OFFSETS
    ]
    chances = np.array([planner.probabilities for planner in begins])
    paid = np.array([planner.decision_dollars for planner in begins])
    drawn = Rule(
        "at temperature 1, on average",
        (chances * right).sum(-1),
        (chances * cost).sum(-1) + paid,
    )
    return [*rules, drawn]


def _cascades(what: str, scores: Sequence[Floats], right: Floats, cost: Floats) -> list[Rule]:
    big, small = DECISIONS.index("big"), DECISIONS.index("small")
    rules: list[Rule] = []
    for quantile in np.linspace(0.0, 1.0, THRESHOLDS + 2)[1:-1]:
        choices = [values >= np.quantile(values, quantile) for values in scores]
        accepted = np.array(choices, dtype=np.float64)
        rules.append(
            Rule(
                f"{what}, the most certain {1 - quantile:.0%} accepted",
                accepted * right[:, small] + (1 - accepted) * right[:, big],
                cost[:, small] + (1 - accepted) * cost[:, big],
            )
        )
    return rules


def _scores(train: Sequence[Answered], rows: Sequence[Answered]) -> Floats:
    """Return scores of the small model's answers to `rows`, learned from `train`; shape (rows,)."""
    both = extract([_evidence(entry) for entry in (*train, *rows)])
    first, second = _numbers(0, len(train)), _numbers(len(train), len(train) + len(rows))
    right = np.array([[entry.small.right, entry.big.right] for entry in train], dtype=np.float64)
    expected = learn(both.take(first), right).predict(both.take(second))
    return expected[:, 0] - expected[:, 1]


def _numbers(begin: int, end: int) -> Rows:
    return np.arange(begin, end, dtype=np.int64)


def _evidence(entry: Answered) -> AnswerEvidence:
    return AnswerEvidence(entry.question.prompt, entry.small.text, entry.small.logprobs)


def _taken(planner: PlannerResult, offset: float = 0.0) -> Floats:
    """Return choices, shape (questions, decisions): 1 for the likeliest decision."""
    chances = np.array(planner.probabilities)
    chances[:, DECISIONS.index("small")] *= np.exp(offset)
    return np.eye(len(DECISIONS))[chances.argmax(axis=1)]


def _columns(rows: Sequence[Answered]) -> tuple[Floats, Floats]:
    """Return correctness and cost, each of shape (questions, decisions)."""

    def table(of: Callable[[Answered, Decision], float]) -> Floats:
        return np.array(
            [[of(entry, decision) for decision in DECISIONS] for entry in rows], dtype=np.float64
        )

    return (
        table(lambda entry, decision: entry.by(decision).right),
        table(lambda entry, decision: entry.by(decision).dollars),
    )


def _mean(values: Sequence[float]) -> float:
    """Mean log-probability; the lowest value without any, since no evidence supports such an
    answer."""
    return sum(values) / len(values) if values else _NOTHING


def _answers(seed: int, output: Path) -> AnswerTable:
    cell = Cell(kind="answers", seed=seed)
    return _finished(read_answers(cell, output), cell, output)


def _planner(seed: int, weight: float | None, output: Path) -> PlannerResult:
    kind = "start" if weight is None else "trained"
    cell = Cell(kind=kind, seed=seed, dollar_weight=weight)
    return _finished(read_planner(cell, output), cell, output)


def _finished(result: T | None, cell: Cell, output: Path) -> T:
    if result is None:
        raise OutputError(f"{cell.folder(output)} has no result: run the command again")
    return result
