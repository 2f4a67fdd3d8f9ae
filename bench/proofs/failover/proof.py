"""`bench failover`: the number of kills, and the bar."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from pathlib import Path

from pydantic import Field

from loopline.bench.proofs.engine.models import prepare, require
from loopline.bench.proofs.engine.vllm_servers import vllm_settings
from loopline.bench.proofs.failover.round import IN_FLIGHT, Round, play
from loopline.bench.proofs.harness import Engines, Options, Progress, Proof, require_engines
from loopline.bench.proofs.outcome import Measurement, Outcome, measured
from loopline.bench.statistics import quantile, spread
from loopline.bus import BusSettings
from loopline.testing import running_redis
from loopline.workers.engines.settings import ModelSettings

MOST_OVER_LEASE = 2.0
"""The bar: most seconds from the end of the lease to the last answer."""
PRECISION = "bf16"
"""Precision of the GGUF file."""


class FailoverOptions(Options):
    """Another worker must have answered all of them within the lease + 2 s. It also fails if an
    answer was billed twice, or if a follower saw a gap. With vllm each worker has a vLLM server of
    its own, which dies with it."""

    model: str = "random-micro"
    """random-micro or random-100m (random weights: they do not end a text before its limit), or a
    model folder whose completions run to the token limit."""
    only: Engines = "both"
    """Engine of ours to measure."""
    lease: float = Field(default=2.0, ge=0.5, le=60)
    """Lease in seconds."""
    rounds: int = Field(default=5, ge=1, le=100)
    """Kills per engine."""

    @property
    def engines(self) -> tuple[str, ...]:
        return ("torch", "llama_cpp") if self.only == "both" else (self.only,)


def check(options: FailoverOptions) -> None:
    """Raises `UsageError` for options that can't be measured here."""
    require_engines(options.only)
    require(options.model, PRECISION)


def measurements(rounds: dict[str, list[Round]], lease: float) -> list[Measurement]:
    """Return seconds after the kill, over all kills of each engine; the slowest answer counts."""
    figures: list[Measurement] = []
    for engine, played in rounds.items():
        for name, values in (
            ("continued by another", [kill.continued for kill in played]),
            ("answered", [kill.answer_seconds for kill in played]),
            ("without a kill", [kill.undisturbed for kill in played]),
        ):
            figures.append(
                measured(name, spread(values), "s", better="lower", subject=engine, group="kills")
            )
        for name, counts in (
            ("tokens before", [float(kill.written) for kill in played]),
            ("tokens after", [float(kill.left) for kill in played]),
        ):
            figures.append(measured(name, quantile(counts, 0.5), subject=engine, group="kills"))
        figures.append(
            measured(
                f"{engine}_answered_s", max(kill.answer_seconds for kill in played), "s",
                better="lower", bar=lease + MOST_OVER_LEASE,
            )
        )  # fmt: skip
    return figures


def run(options: FailoverOptions, progress: Progress) -> Outcome:
    """Kill a worker that many times for each engine. Raises `BenchError` if an answer is billed
    twice, or if a follower reads anything but its text."""
    rounds: dict[str, list[Round]] = {}

    def outcome() -> Outcome:
        return Outcome(
            about=f"{options.model}, {IN_FLIGHT} streamed requests, lease {options.lease:g} s. "
            "Seconds after the kill; medians (least–greatest).",
            measurements=measurements(rounds, options.lease),
        )

    progress.outcome = outcome
    with tempfile.TemporaryDirectory(prefix="bench-failover-") as scratch:
        folder = Path(scratch)
        weights = prepare(
            options.model, PRECISION, folder, with_gguf="llama_cpp" in options.engines
        )
        with running_redis(folder / "redis", persistence="none", listen="tcp") as server:
            settings = BusSettings(redis_url=server.url, lease_seconds=options.lease)
            for number, engine in itertools.product(range(options.rounds), options.engines):
                progress.say(f"round {number + 1} of {options.rounds}: {engine}…")
                server.flush()
                file = weights.gguf if engine == "llama_cpp" else weights.folder
                if engine == "vllm":
                    model_settings = vllm_settings(str(file), threads=1, places=IN_FLIGHT)
                else:
                    model_settings = ModelSettings(
                        engine=engine, model=str(file), max_concurrency=IN_FLIGHT
                    )
                rounds.setdefault(engine, []).append(
                    asyncio.run(play(settings, model_settings, number, folder / "workers"))
                )
    return outcome()


def _minutes(options: FailoverOptions) -> float:
    return len(options.engines) * options.rounds * 18 / 60


PROOF = Proof(
    name="failover",
    title="answers after kill -9 of a gpu worker with 16 streams in flight",
    options=FailoverOptions,
    minutes=_minutes,
    run=run,
    check=check,
)
