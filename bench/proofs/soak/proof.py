"""`bench soak`: attack an engine, and check its behaviour."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import Field

from loopline.bench.proofs.harness import (
    Options,
    Progress,
    Proof,
    Seed,
    random_seed,
    require_engines,
)
from loopline.bench.proofs.isolated_process import redirect_logs
from loopline.bench.proofs.outcome import Measurement, Outcome, measured
from loopline.bench.proofs.soak import memory
from loopline.bench.proofs.soak.driver import Soak, SoakResult
from loopline.bench.proofs.soak.invariants import GRACE, SAME
from loopline.bench.proofs.soak.weights import prepare


class SoakOptions(Options):
    """Close some requests, let the deadlines of others pass, and swap, unload and damage adapters
    meanwhile.

    Every request must end once, in a way that its plan allows, with the adapter's version that
    served when it was sent; counts must add up; answers must be those of an idle engine; afterwards
    nothing may be left over, and memory must not have grown.
    """

    engine: Literal["llama_cpp", "torch", "vllm"] = "llama_cpp"
    """Engine to run; vllm is a vLLM server in float32."""
    requests: int = Field(default=10_000, ge=1, le=10_000_000)
    """Requests to send."""
    seed: Seed = Field(default_factory=random_seed)
    """Seed of the requests; random without it."""
    model: str = "micro:slm"
    """micro:slm, micro:llm, or a folder of safetensors."""
    concurrency: int = Field(default=16, ge=1, le=200)
    """Requests in flight; the engine has half the rows."""
    threads: int = Field(default=1, ge=1, le=256)
    """CPU threads of the engine."""


def check(options: SoakOptions) -> None:
    """Raises `UsageError` for an engine that is not installed."""
    require_engines(options.engine)


def run(options: SoakOptions, progress: Progress) -> Outcome:
    """Attack, and check. Raises `BenchError` for a model that can't be served."""
    progress.say(
        f"seed {options.seed}: {options.requests:,} requests to {options.engine} with "
        f"{options.model}, {options.concurrency} in flight"
    )
    if options.engine == "vllm":
        redirect_logs()
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as scratch:
        soak = Soak(
            options.engine,
            prepare(options.engine, options.model, Path(scratch)),
            requests=options.requests,
            seed=options.seed,
            concurrency=options.concurrency,
            threads=options.threads,
            progress=progress.say,
        )
        progress.outcome = lambda: outcome_of(options, soak.result)
        asyncio.run(soak.run())
    return outcome_of(options, soak.result)


def outcome_of(options: SoakOptions, result: SoakResult) -> Outcome:
    """Return the figures of the soak, at any time."""
    third, last = memory.quarters(result.samples) if len(result.samples) >= 4 else (0.0, 0.0)
    return Outcome(
        about=f"{options.engine} with {options.model}, seed {options.seed}.",
        measurements=_measurements(options, result) if result.sums.endings else [],
        violations=result.violations,
        broken=result.rules,
        facts={
            "ended": result.sums.endings.total(),
            "endings": dict(sorted(result.sums.endings.items())),
            "answered": result.sums.answers,
            "prompt_tokens": result.sums.prompt_tokens,
            "completion_tokens": result.sums.completion_tokens,
            "abandoned_tokens": result.totals.abandoned_tokens,
            "versions_loaded": result.operations["load"],
            "adapters_unloaded": result.operations["unload"],
            "damaged_adapters_refused": result.operations["load damaged"],
            "compared_in_quiet": result.repeated,
            "nearly_tied": result.tied,
            "rss_third_quarter_mb": round(third / 1e6, 1),
            "rss_last_quarter_mb": round(last / 1e6, 1),
        },
        notes=[] if result.rested else ["stopped early: leftovers at rest were not checked"],
    )


def _measurements(options: SoakOptions, result: SoakResult) -> list[Measurement]:
    growth = memory.growth(result.samples)
    judged = options.requests >= memory.FEWEST_REQUESTS
    figures = [
        measured("longest_until_ended_early", result.latest, "s", better="lower", bar=GRACE),
        measured(
            "greatest_logprob_difference", result.difference, "nats", better="lower", bar=SAME
        ),
    ]
    if growth is not None:
        figures.append(
            measured(
                "rss_growth", growth, "%", scale=100, better="lower",
                bar=100 * memory.GROWTH if judged else None,
            )
        )  # fmt: skip
    if result.seconds:
        rate = result.sums.endings.total() / result.seconds
        figures.insert(0, measured("requests_per_second", rate, "/s", better="higher"))
    return figures


def _minutes(options: SoakOptions) -> float:
    """Expected minutes with the micro-SLM, with 200 answers repeated without load."""
    return (20 + options.requests * 0.016) / 60


PROOF = Proof(
    name="soak",
    title="one engine under cancellations, deadlines and swaps of adapters",
    options=SoakOptions,
    minutes=_minutes,
    run=run,
    check=check,
)
