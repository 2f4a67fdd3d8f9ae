"""`bench flow`: how much of a rate limit workers use together, and how one tenant's load affects
another."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import structlog
from pydantic import Field

from loopline.bench.proofs.flow import rate, tenants
from loopline.bench.proofs.harness import Options, Progress, Proof
from loopline.bench.proofs.outcome import Outcome, Violation, measured
from loopline.bus import BusSettings
from loopline.testing import running_redis


class FlowOptions(Options):
    """Workers share a rate limit, and tenants share the active runs."""

    per_minute: int = Field(default=60, ge=60, le=100_000)
    """Calls that the endpoint allows in any 60 seconds."""
    seconds: float = Field(default=150.0, ge=65, le=3_600)
    """Seconds that the workers call it."""
    runs: int = Field(default=10_000, ge=100, le=100_000)
    """Runs of the large tenant."""
    samples: int = Field(default=200, ge=20, le=10_000)
    """Runs of the small tenant, alone and next to those of the large one."""


def run(options: FlowOptions, progress: Progress) -> Outcome:
    """Run both measurements, one after the other."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory(prefix="bench-flow-") as scratch:
        folder = Path(scratch)
        with running_redis(folder / "redis", listen="tcp") as server:
            settings = BusSettings(
                redis_url=server.url, max_runs=2 * options.runs, max_unrecorded=1_000_000
            )
            limited = asyncio.run(
                rate.play(
                    settings.model_copy(update={"prefix": "rate"}), folder,
                    per_minute=options.per_minute, seconds=options.seconds, say=progress.say,
                )
            )  # fmt: skip
            shared = asyncio.run(
                tenants.play(
                    settings.model_copy(update={"prefix": "tenants"}), folder / "tenants",
                    runs=options.runs, samples=options.samples, say=progress.say,
                )
            )  # fmt: skip
    outcome = Outcome(
        about=(
            f"{rate.WORKERS} workers on {options.per_minute} calls a minute for "
            f"{options.seconds:.0f} s; a tenant with {options.runs:,} runs, {tenants.WORKING} of "
            f"them active at once, next to one with {tenants.FEW_AT_ONCE}"
        ),
        measurements=[
            measured("refused", limited.refused, better="lower", bar=0),
            measured("limit_used", limited.answers / limited.allowed, better="higher", bar=0.95),
            measured("p99_ratio", shared.p99_ratio, better="lower", bar=2),
            measured("calls answered", limited.answers),
            measured("p99 alone", tenants.percentile(shared.alone, 0.99), unit="s"),
            measured("p99 together", tenants.percentile(shared.together, 0.99), unit="s"),
            measured("p50 alone", tenants.percentile(shared.alone, 0.5), unit="s"),
            measured("p50 together", tenants.percentile(shared.together, 0.5), unit="s"),
        ],
    )
    if not shared.waiting:
        why = "the large tenant's runs ended too early: give more --runs"
        outcome.violate([Violation("the large tenant waits all the time", why)])
    return outcome


PROOF = Proof(
    name="flow",
    title="rate limits shared by workers, and turns shared by tenants",
    options=FlowOptions,
    minutes=lambda options: options.seconds / 60 + options.samples / 60 + options.runs / 15_000,
    run=run,
)
