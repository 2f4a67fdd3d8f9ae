"""`bench budgets`: runs of many branches that call at once, with a budget that some of them would
exceed, while workers die and pause and Redis restarts; the provider's book records the bills."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Annotated

import structlog
import uvloop
from pydantic import Field

from loopline.bench.proofs.budgets.load import play
from loopline.bench.proofs.budgets.provider import read_book
from loopline.bench.proofs.budgets.totals import Batch, Totals, read_totals
from loopline.bench.proofs.harness import Options, Progress, Proof, random_seed
from loopline.bench.proofs.outcome import Outcome, measured
from loopline.bus import BusSettings
from loopline.runtime.config.options import Option
from loopline.testing import running_redis
from loopline.trainers.core.json_records import write_record

BATCH = 200
"""Runs on one server: the most that Ctrl-C loses, and a limit of the log that a restart reads."""


class BudgetsOptions(Options):
    """No run may be billed more than its budget, and nothing may stay reserved."""

    runs: int = Field(default=300, ge=1, le=1_000_000)
    """Runs, twelve at once."""
    branches: int = Field(default=64, ge=1, le=1_000)
    """Calls of each run, all sent at once."""
    usd: float = Field(default=1.0, ge=0.06, le=1_000)
    """Budget of each run in US dollars; a call costs up to $0.05."""
    hedge: bool = False
    """Send slow calls a second time, if the budget has room for both."""
    seed: Annotated[int | None, Option(default="random, or the checkpoint's")] = None
    """Seed of the costs, and of the times of kills, pauses and restarts."""
    checkpoint: Path | None = None
    """File with the totals of each 200 runs; the same command resumes it."""


def run(options: BudgetsOptions, progress: Progress) -> Outcome:
    """Run, and compare the bus's counts with the book."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    totals = Totals(
        seed=random_seed() if options.seed is None else options.seed,
        branches=options.branches,
        micro_dollars=round(options.usd * 1e6),
        hedge=options.hedge,
    )
    path = options.checkpoint
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        totals = read_totals(path, totals, options.seed)
        if totals.runs:
            progress.say(f"continuing after {totals.runs:,} runs in {path}")
    progress.outcome = lambda: _outcome(totals)
    while totals.runs < options.runs:
        batch = _play(totals, min(BATCH, options.runs - totals.runs))
        totals = totals.plus(batch)
        if path is not None:
            write_record(path, totals)
        progress.say(
            f"{totals.runs:,} of {options.runs:,} runs ended in {totals.seconds:,.0f} s: "
            f"{totals.attacks} attacks, {totals.overspent} overspent, {totals.leaked} reservations "
            f"left, {len(totals.violations)} violations"
        )
    return _outcome(totals)


def _play(totals: Totals, runs: int) -> Batch:
    """Run a batch on a fresh server with a fresh book. A resumed proof does not repeat the first
    runs."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-budgets-") as scratch:
        folder = Path(scratch)
        book = folder / "book"
        # With `everysec` a busy disk delays writes, and a killed Redis loses admitted runs.
        with running_redis(folder / "redis", listen="tcp", persistence="no") as server:
            settings = BusSettings(
                redis_url=server.url, lease_seconds=1.0, sweep_seconds=0.1, block_seconds=0.1,
                retry_base_seconds=0.02, max_attempts=100, max_unrecorded=10_000_000,
                max_runs=1_000, retention_seconds=7_200,
            )  # fmt: skip
            result = uvloop.run(
                play(
                    settings, server, book, runs=runs, branches=totals.branches,
                    micro_dollars=totals.micro_dollars,
                    rng=random.Random(f"{totals.seed}/{totals.runs}"),
                    hedge=totals.hedge,
                )
            )  # fmt: skip
        return Batch(result, *read_book(book), time.monotonic() - began)


def _outcome(totals: Totals) -> Outcome:
    outcome = Outcome(
        about=(
            f"{totals.runs:,} runs of {totals.branches} branches under "
            f"${totals.micro_dollars / 1e6:g}; {totals.kills:,} kills and {totals.pauses:,} pauses "
            f"of workers, {totals.restarts:,} restarts of Redis; seed {totals.seed}"
        ),
        measurements=[
            measured("overspent_runs", totals.overspent, better="lower", bar=0),
            measured("leaked_reservations", totals.leaked, better="lower", bar=0),
            measured("calls billed", totals.calls),
            measured("calls answered", totals.answers),
            measured("calls sent a second time", totals.hedged),
            measured("runs that a budget ended", totals.refused),
            measured("dearest run in dollars", totals.dearest / 1e6),
            measured("billed in dollars", totals.billed / 1e6),
            measured("charged in dollars", totals.charged / 1e6),
        ],
        facts={
            "runs": totals.runs,
            "seed": totals.seed,
            "played_seconds": round(totals.seconds, 1),
        },
    )
    outcome.violate(totals.broken)
    return outcome


PROOF = Proof(
    name="budgets",
    title="bills of runs under budgets, while workers die and Redis restarts",
    options=BudgetsOptions,
    minutes=lambda options: options.runs * options.branches / 25_000,
    run=run,
)
