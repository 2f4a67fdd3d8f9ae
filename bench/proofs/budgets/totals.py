"""Totals of all batches of runs, and their checkpoint: a proof of many runs can be interrupted and
resumed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.records import Record
from loopline.bench.errors import UsageError
from loopline.bench.proofs.budgets.load import Result
from loopline.bench.proofs.outcome import Violation
from loopline.trainers.core.json_records import find_record
from loopline.trainers.errors import TrainingError


@dataclass(frozen=True)
class Batch:
    """Runs on one server, and the provider's book about them."""

    result: Result
    billed: Counter[str]
    """Micro-dollars by run."""
    calls: int
    seconds: float


class Totals(Record):
    """Totals of all batches so far, in the form of a checkpoint. Money is in micro-dollars."""

    seed: int
    branches: int
    micro_dollars: int
    """Budget of each run."""
    hedge: bool
    runs: int = 0
    seconds: float = 0.0
    kills: int = 0
    pauses: int = 0
    restarts: int = 0
    overspent: int = 0
    """Runs that were billed more than their budget."""
    leaked: int = 0
    """Runs and days with tokens or money that stayed reserved."""
    calls: int = 0
    """Calls that were billed."""
    answers: int = 0
    hedged: int = 0
    refused: int = 0
    dearest: int = 0
    billed: int = 0
    charged: int = 0
    violations: tuple[tuple[str, str], ...] = ()
    """Messages about broken rules, by rule."""

    @property
    def attacks(self) -> int:
        return self.kills + self.pauses + self.restarts

    def plus(self, batch: Batch) -> Totals:
        """Return the totals with one more batch, checked against the book."""
        result, billed = batch.result, batch.billed
        _, reserved = result.day
        leaked = sum(map(bool, result.reserved.values()))
        leaked += bool(reserved.tokens or reserved.micro_dollars)
        return self.model_copy(
            update={
                "runs": self.runs + len(result.spent),
                "seconds": self.seconds + batch.seconds,
                "kills": self.kills + result.attacks.kills,
                "pauses": self.pauses + result.attacks.pauses,
                "restarts": self.restarts + result.attacks.restarts,
                "overspent": self.overspent
                + sum(cost > self.micro_dollars for cost in billed.values()),
                "leaked": self.leaked + leaked,
                "calls": self.calls + batch.calls,
                "answers": self.answers + result.answers,
                "hedged": self.hedged + result.hedged,
                "refused": self.refused + result.refused,
                "dearest": max(self.dearest, *billed.values(), 0),
                "billed": self.billed + sum(billed.values()),
                "charged": self.charged + sum(result.spent.values()),
                "violations": (*self.violations, *_broken(result, billed, self.micro_dollars)),
            }
        )

    @property
    def broken(self) -> list[Violation]:
        return [Violation(rule, message) for rule, message in self.violations]


def _broken(result: Result, billed: Counter[str], budget: int) -> list[tuple[str, str]]:
    """Return the rules that a batch has broken, and how."""
    broken = [
        ("what is billed is charged",
         f"run {run_id}: ${cost / 1e6} of ${result.spent.get(run_id, 0) / 1e6}")
        for run_id, cost in billed.items()
        if cost > result.spent.get(run_id, 0)
    ]  # fmt: skip
    broken += [
        ("no run is charged more than its budget", f"run {run_id}: ${cost / 1e6}")
        for run_id, cost in result.spent.items()
        if cost > budget
    ]
    charged = sum(result.spent.values())
    if (day := result.day[0].micro_dollars) != charged:
        broken.append(
            ("the day has what its runs have", f"${day / 1e6} of its runs' ${charged / 1e6}")
        )
    return broken


def read_totals(path: Path, initial: Totals, seed: int | None) -> Totals:
    """Read the totals of a checkpoint; return `initial` if there is none. Raises `UsageError` for a
    checkpoint of other options, or a damaged one."""
    try:
        saved = find_record(path, Totals, "remove it to start again")
    except TrainingError as error:
        raise UsageError(str(error)) from error
    if saved is None:
        return initial
    expected = {
        "--seed": (saved.seed, saved.seed if seed is None else seed),
        "--branches": (saved.branches, initial.branches),
        "--usd": (saved.micro_dollars / 1e6, initial.micro_dollars / 1e6),
        "--hedge": (saved.hedge, initial.hedge),
    }
    for option, (had, wanted) in expected.items():
        if had != wanted:
            raise UsageError(
                f"{path} has {option} {had}, not {wanted}: use that value, or give another file"
            )
    return saved
