"""Results of a search. They do not depend on when or how often it was interrupted."""

from __future__ import annotations

from pathlib import Path

from loopline.agents.records import Record
from loopline.trainers.core.json_records import find_record
from loopline.trainers.core.paired_statistics import (
    Interval,
    bootstrap_difference,
    mcnemar_exact,
    paired_table,
    wilson,
)
from loopline.trainers.errors import UnreadableData
from loopline.trainers.prompts.settings import SearchSettings

REPORT = "report.json"

Bounds = tuple[float, float, float]
"""Estimate, lower and upper bound, as shares."""


class CandidateFacts(Record):
    """Results of one candidate in the search."""

    label: str
    origin: str
    version: int
    hash: str
    solved: int
    questions: int
    rate: Bounds
    tokens_per_run: float
    left_in_round: int | None
    """The round after which it was dropped; None for the winner, and for candidates still present
    when the search stopped early."""


class RejectedProposal(Record):
    """A proposal that was not a candidate."""

    label: str
    why: str


class Comparison(Record):
    """The winner compared with the current prompt on held-out questions."""

    questions: int
    winner: int
    current: int
    """Number of questions that each solved."""
    winner_rate: Bounds
    current_rate: Bounds
    only_winner: int
    only_current: int
    difference: Bounds
    """Winner − current: 95 % percentile bootstrap over questions."""
    p: float
    """P-value of McNemar's exact test, two-sided."""
    winner_tokens_per_run: float
    current_tokens_per_run: float

    def better(self, alpha: float) -> bool:
        """Whether the winner is significantly better: by the interval and by the test."""
        return self.difference[1] > 0 and self.p <= alpha


class PromptFacts(Record):
    """Facts about the search for one prompt."""

    prompt: str
    rounds: tuple[tuple[int, int], ...]
    """Number of candidates and of new questions in each round, as planned."""
    candidates: tuple[CandidateFacts, ...]
    """Candidates from the best to the worst."""
    refused: tuple[RejectedProposal, ...]
    winner: str
    alpha: float
    """Level that the test's p-value had to be below."""
    comparison: Comparison | None
    """Comparison on held-out questions; None if the winner is the current prompt, or the tokens
    were not enough."""
    adopted: str | None
    """Hash of the file that was adopted."""
    why: str
    """Why it was adopted or rejected."""


class Report(Record):
    """A finished search."""

    settings: SearchSettings
    checker: str
    prompts: tuple[PromptFacts, ...]
    runs: int
    tokens: int
    micro_dollars: int


def bounds(interval: Interval) -> Bounds:
    return interval.estimate, interval.low, interval.high


def rate(solved: int, attempts: int) -> Bounds:
    """Rate with Wilson's interval."""
    interval = wilson(solved, attempts)
    return (solved / attempts if attempts else 0.0, interval.low, interval.high)


def compare_prompts(
    winner: list[bool], current: list[bool], tokens: tuple[float, float], seed: int
) -> Comparison:
    """Compare both on the same questions in the same order; `tokens` per run of the winner and the
    current."""
    table = paired_table(winner, current)
    n = table.n
    return Comparison(
        questions=n,
        winner=table.both + table.only_a,
        current=table.both + table.only_b,
        winner_rate=rate(table.both + table.only_a, n),
        current_rate=rate(table.both + table.only_b, n),
        only_winner=table.only_a,
        only_current=table.only_b,
        difference=bounds(
            bootstrap_difference(
                [float(outcome) for outcome in winner],
                [float(outcome) for outcome in current],
                seed=seed,
            )
        ),
        p=mcnemar_exact(table.only_a, table.only_b),
        winner_tokens_per_run=tokens[0],
        current_tokens_per_run=tokens[1],
    )


def read_report(folder: Path) -> Report | None:
    """Report of a finished search; None for an unfinished one. Raises `UnreadableData`."""
    return find_record(folder / REPORT, Report, "--restart searches again", UnreadableData)
