"""`bench budgets`: runs of many branches that ask at once, under a budget that some of them would
pass, while workers die and pause and Redis restarts; the provider's book says what was billed."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import structlog
from pydantic import Field

from loopline.bench.proofs.budgets.load import Result, play
from loopline.bench.proofs.budgets.provider import read_book
from loopline.bench.proofs.harness import Options, Progress, Proof, Seed, random_seed
from loopline.bench.proofs.outcome import Outcome, Violation, measured
from loopline.bus import BusSettings
from loopline.testing import running_redis


class BudgetsOptions(Options):
    """No run may be billed more than its budget, and nothing may stay reserved."""

    runs: int = Field(default=300, ge=1, le=1_000_000)
    """Runs, twelve at once."""
    branches: int = Field(default=64, ge=1, le=1_000)
    """Calls of each run, all asked for at once."""
    usd: float = Field(default=1.0, ge=0.06, le=1_000)
    """Budget of each run in US dollars; a call costs up to $0.05."""
    hedge: bool = False
    """Send calls that are slow a second time, where the budget has room for both."""
    seed: Seed = Field(default_factory=random_seed, ge=0)
    """Seed of the costs, and of the moments of kills, pauses and restarts."""


def run(options: BudgetsOptions, progress: Progress) -> Outcome:
    """Play, and hold the bus's counts against the book."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    micro_dollars = round(options.usd * 1e6)
    with tempfile.TemporaryDirectory(prefix="bench-budgets-") as scratch:
        folder = Path(scratch)
        book = folder / "book"
        with running_redis(folder / "redis", listen="tcp", persistence="everysec") as server:
            settings = BusSettings(
                redis_url=server.url, lease_seconds=1.0, sweep_seconds=0.1, block_seconds=0.1,
                retry_base_seconds=0.02, max_attempts=100, max_unrecorded=10_000_000,
                max_runs=1_000, retention_seconds=7_200,
            )  # fmt: skip
            result = asyncio.run(
                play(
                    settings, server, book, runs=options.runs, branches=options.branches,
                    micro_dollars=micro_dollars, rng=random.Random(options.seed),
                    say=progress.say, hedge=options.hedge,
                )
            )  # fmt: skip
        return _outcome(options, micro_dollars, result, book)


def _outcome(options: BudgetsOptions, micro_dollars: int, result: Result, book: Path) -> Outcome:
    billed, calls = read_book(book)
    overspent = [run_id for run_id, cost in billed.items() if cost > micro_dollars]
    leaked = [run_id for run_id, reserved in result.reserved.items() if reserved]
    spent, reserved = result.day
    if reserved.tokens or reserved.micro_dollars:
        leaked.append("day")
    attacks = result.attacks
    outcome = Outcome(
        about=(
            f"{options.runs:,} runs of {options.branches} branches under ${options.usd:g}; "
            f"{attacks.kills} kills and {attacks.pauses} pauses of workers, {attacks.restarts} "
            f"restarts of Redis; seed {options.seed}"
        ),
        measurements=[
            measured("overspent_runs", len(overspent), better="lower", bar=0),
            measured("leaked_reservations", len(leaked), better="lower", bar=0),
            measured("calls billed", calls),
            measured("calls answered", result.answers),
            measured("calls sent a second time", result.hedged),
            measured("runs that a budget ended", result.refused),
            measured("dearest run in dollars", max(billed.values(), default=0) / 1e6),
            measured("billed in dollars", sum(billed.values()) / 1e6),
            measured("charged in dollars", sum(result.spent.values()) / 1e6),
        ],
    )
    violations = [
        Violation("what is billed is charged", f"run {run_id}: ${cost / 1e6} of "
                  f"${result.spent.get(run_id, 0) / 1e6}")
        for run_id, cost in billed.items()
        if cost > result.spent.get(run_id, 0)
    ]  # fmt: skip
    violations += [
        Violation("no run is charged more than its budget", run_id)
        for run_id, cost in result.spent.items()
        if cost > micro_dollars
    ]
    if spent.micro_dollars != sum(result.spent.values()):
        violations.append(
            Violation("the day has what its runs have", f"{spent.micro_dollars} micro-dollars")
        )
    outcome.violate(violations)
    return outcome


PROOF = Proof(
    name="budgets",
    title="what runs are billed under budgets, while workers die and Redis restarts",
    options=BudgetsOptions,
    minutes=lambda options: options.runs * options.branches / 3_000,
    run=run,
)
