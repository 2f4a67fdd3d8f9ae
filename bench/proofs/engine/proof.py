"""`bench engine`: the measurements, their order, and the ratios that matter."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import Field

from loopline.bench.errors import UsageError
from loopline.bench.proofs.engine import batched
from loopline.bench.proofs.engine.models import Weights, prepare, require
from loopline.bench.proofs.engine.workload import Measured, Peer, asks
from loopline.bench.proofs.harness import (
    FullOptions,
    Progress,
    Proof,
    numbers,
    require_engines,
)
from loopline.bench.proofs.isolated_process import isolated_worker, redirect_logs
from loopline.bench.proofs.outcome import Measurement, Outcome, Plot, measured
from loopline.bench.statistics import quantile, spread
from loopline.runtime.terminal.pages.curves import Curve, Point, curves_plot

OURS_LLAMA = "ours (llama_cpp)"
OURS_TORCH = "ours (torch)"
VLLM = "a vLLM server (the engine vllm)"
VLLM_DIRECT = "a vLLM server, asked directly"
VLLM_WORKER = "a vLLM server, through the gpu worker"
SERVER = "llama-cpp-python's server"
GENERATE = "generate"
CONTINUOUS = "continuous batching"
_ENGINES = frozenset({"llama_cpp", "torch", "vllm"})
MIN_TORCH_VS_VLLM = 1.5
"""Bar for micro models, from `BARRED_PLACES` requests in flight on."""
BARRED_PLACES = 64
MIN_WORKER_VS_SERVER = 0.95


class EngineOptions(FullOptions):
    """All engines run on this machine.

    Peers: llama-cpp-python's packaged server, llama-batched-bench, transformers' `generate` on a
    static batch, and its continuous batching. All requests start with one role prompt of about 300
    tokens.
    """

    model: str = "micro:llm"
    """micro:llm, micro:slm, random-100m (a Qwen2 of that size with random weights), or a folder of
    safetensors."""
    precision: str = "bf16"
    """Precision of the GGUF file: f32, f16, bf16, q8_0 or q4_k_m."""
    only: str = "both"
    """Engines to measure, comma-separated: llama_cpp, torch, vllm; both is the first two. With
    vllm, a vLLM server is started for each measurement, and transformers' peers are skipped."""
    concurrency: str = "16"
    """Requests in flight, comma-separated."""
    repeats: int = Field(default=3, ge=1, le=100)
    """Interleaved repeats; the medians are reported."""
    threads: int = Field(default=2, ge=1, le=256)
    """CPU threads of each engine."""
    batched_bench: Path | None = None
    """llama.cpp's own llama-batched-bench, for comparison."""

    @property
    def engines(self) -> frozenset[str]:
        """Raises `UsageError`."""
        names = "llama_cpp,torch" if self.only == "both" else self.only
        engines = frozenset(name.strip() for name in names.split(","))
        if not engines <= _ENGINES:
            wrong = ", ".join(sorted(engines - _ENGINES))
            raise UsageError(f"--only {wrong}: choose from {', '.join(sorted(_ENGINES))}, both")
        return engines

    @property
    def places(self) -> list[int]:
        """Return the numbers of requests in flight. Raises `UsageError`."""
        return sorted({int(n) for n in numbers("concurrency", self.concurrency, low=1, high=200)})


@dataclass
class Runs:
    """Results of all repeats of every peer."""

    about: dict[str, str] = field(default_factory=dict[str, str])
    by_places: dict[int, dict[str, list[Measured]]] = field(
        default_factory=dict[int, dict[str, list[Measured]]]
    )
    """Repeats by number of requests in flight and peer."""
    is_micro: bool = False
    """Whether the model is one of the micro models."""
    batched: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Seconds of llama-batched-bench and of ours, for each repeat."""

    def measurements(self) -> list[Measurement]:
        """Return every peer's figures, then the ratios."""
        figures: list[Measurement] = []
        for places, peers in self.by_places.items():
            for name, runs in peers.items():
                figures += _peer(f"{places} in flight", name, runs)
        most = max(self.by_places, default=0)
        for places, peers in self.by_places.items():
            figures += _ratio(f"llama_cpp_vs_server_{places}", peers, OURS_LLAMA, SERVER)
            if places in (16, 64, most):
                figures += _ratio(f"torch_vs_generate_{places}", peers, OURS_TORCH, GENERATE)
                figures += _ratio(f"torch_vs_continuous_{places}", peers, OURS_TORCH, CONTINUOUS)
            figures += _ratio(
                f"torch_vs_vllm_{places}", peers, OURS_TORCH, VLLM,
                bar=MIN_TORCH_VS_VLLM if self.is_micro and places >= BARRED_PLACES else None,
            )  # fmt: skip
            figures += _ratio(
                f"worker_vs_vllm_{places}", peers, VLLM_WORKER, VLLM_DIRECT,
                bar=MIN_WORKER_VS_SERVER,
            )  # fmt: skip
        if self.batched:
            bench_seconds, engine_seconds = zip(*self.batched, strict=True)
            figures += [
                measured("llama_batched_bench_s", spread(bench_seconds), "s"),
                measured("llama_cpp_batch_s", spread(engine_seconds), "s", better="lower"),
                measured(
                    "llama_cpp_vs_batched_bench", spread([a / b for a, b in self.batched]), "×",
                    better="higher",
                ),
            ]  # fmt: skip
        return figures

    def plot(self, title: str) -> Plot:
        """Plot tokens per second over the number of requests in flight, with a line for each
        peer."""
        curves = [
            Curve(
                name,
                [
                    Point(float(places), *spread([run.tokens_per_second for run in peers[name]]))
                    for places, peers in sorted(self.by_places.items())
                    if name in peers
                ],
            )
            for name in self.about
        ]
        drawing = curves_plot(
            title, curves, x_label="requests in flight", least=0.0, log_x=True,
            x_ticks=sorted(self.by_places),
        )  # fmt: skip
        return Plot(
            drawing,
            "Tokens per second of all requests together. Lines: median of the repeats; bands: "
            "their range.",
        )


def _peer(group: str, name: str, runs: list[Measured]) -> list[Measurement]:
    """Return the figures of one peer at one number of requests in flight; latencies are over the
    requests, or tokens, of all repeats, and NaN if a peer does not report them."""

    def figure(
        quantity: str, times: Callable[[Measured], list[float]], share: float, unit: str = "ms"
    ) -> Measurement:
        seconds = quantile([value for run in runs for value in times(run)], share)
        return measured(
            quantity, seconds, unit, scale=1000 if unit == "ms" else 1, better="lower",
            subject=name, group=group,
        )  # fmt: skip

    timings = [timing for run in runs for timing in run.timings]
    reused = sum(timing.reused for timing in timings)
    prompt = [
        measured(quantity, tokens, subject=name, group=group)
        for quantity, tokens in (
            ("prompt computed", sum(timing.prompt for timing in timings) - reused),
            ("reused", reused),
        )
    ]
    return [
        measured(
            "tokens/s", spread([run.tokens_per_second for run in runs]), better="higher",
            subject=name, group=group,
        ),
        figure("first token p50", lambda run: run.first_token, 0.5),
        figure("first token p99", lambda run: run.first_token, 0.99),
        figure("per token p50", lambda run: run.per_token, 0.5),
        figure("per token p99", lambda run: run.per_token, 0.99),
        figure("request p99", lambda run: run.whole, 0.99, "s"),
        # Zeros if a peer reports nothing.
        *(prompt if any(figure.value for figure in prompt) else []),
    ]  # fmt: skip


def _ratio(
    name: str,
    peers: Mapping[str, list[Measured]],
    subject: str,
    other: str,
    *,
    bar: float | None = None,
) -> list[Measurement]:
    """Return the ratio of our tokens per second to the other's, repeat by repeat; empty if one of
    them is not measured."""
    if subject not in peers or other not in peers:
        return []
    pairs = zip(peers[subject], peers[other], strict=False)
    rates = [a.tokens_per_second / b.tokens_per_second for a, b in pairs]
    return [measured(name, spread(rates), "×", better="higher", bar=bar)] if rates else []


def check(options: EngineOptions) -> None:
    """Raises `UsageError` for options that can't be measured here."""
    if "llama_cpp" in options.engines:
        require_engines("llama_cpp")
    if "vllm" in options.engines:
        require_engines("vllm")
    _ = options.places
    require(options.model, options.precision)


def run(options: EngineOptions, progress: Progress) -> Outcome:
    """Measure every peer at every number of requests in flight."""
    runs = Runs(is_micro=options.model.startswith("micro:"))

    def outcome() -> Outcome:
        title = f"{options.model}: tokens per second"
        return Outcome(
            about=f"{options.model}; GGUF {options.precision}, torch float32; {os.cpu_count()} "
            f"cores, {options.threads} threads for each engine. Medians over the repeats "
            "(least–greatest); latencies over all their requests and tokens.",
            measurements=runs.measurements(),
            facts={"peers": runs.about},
            plots=[runs.plot(title)] if runs.by_places else [],
        )

    progress.outcome = outcome
    with (
        tempfile.TemporaryDirectory(prefix="bench-engine-") as scratch,
        # Leftovers of one peer slow the next down by up to a third.
        isolated_worker() as alone,
    ):
        with_gguf = "llama_cpp" in options.engines
        making = alone.submit(
            prepare, options.model, options.precision, Path(scratch), with_gguf=with_gguf
        )
        _measure(options, making.result(), alone, runs, progress)
    return outcome()


def _measure(
    options: EngineOptions, weights: Weights, alone: Executor, runs: Runs, progress: Progress
) -> None:
    for count in options.places:
        peers = _peers(options, weights, count)
        for repeat in range(options.repeats):
            for name, make in peers.items():
                progress.say(
                    f"{count} in flight, repeat {repeat + 1} of {options.repeats}: {name}…"
                )
                about, done = alone.submit(_run, make, count, repeat).result()
                runs.about[name] = about
                runs.by_places.setdefault(count, {}).setdefault(name, []).append(done)
    if options.batched_bench is not None and weights.gguf is not None:
        for repeat in range(options.repeats):
            progress.say(f"llama-batched-bench, repeat {repeat + 1} of {options.repeats}…")
            bench_seconds = batched.measure_reference(
                options.batched_bench, weights.gguf, threads=options.threads
            )
            engine_seconds = alone.submit(
                batched.measure_engine, weights.gguf, threads=options.threads
            ).result()
            runs.batched.append((bench_seconds, engine_seconds))


def _run(make: Callable[[], Peer], count: int, repeat: int) -> tuple[str, Measured]:
    """Start one peer, warm it up, and let it answer; return its description and its figures."""

    # If a server dies, its error has its last lines; its other log is not part of the result.
    redirect_logs()

    async def run() -> tuple[str, Measured]:
        peer = make()
        await peer.start()
        try:
            await peer.run(asks(1, seed=-1), 1)
            return peer.about, await peer.run(asks(count, seed=repeat), count)
        finally:
            await peer.close()

    return asyncio.run(run())


def _peers(options: EngineOptions, weights: Weights, places: int) -> dict[str, Callable[[], Peer]]:
    """Return the constructors of the peers, by name."""
    from loopline.bench.proofs.engine.ours import OurEngine
    from loopline.bench.proofs.engine.vllm_servers import BareServer, WorkerOnServer

    peers: dict[str, Callable[[], Peer]] = {}
    if weights.gguf is not None:
        from loopline.bench.proofs.engine.packaged_server import PackagedServer

        peers[OURS_LLAMA] = partial(
            OurEngine, "llama_cpp", str(weights.gguf), threads=options.threads, places=places
        )
        peers[SERVER] = partial(PackagedServer, weights.gguf, context=1024, threads=options.threads)
    if "torch" in options.engines:
        peers[OURS_TORCH] = partial(
            OurEngine, "torch", str(weights.folder), threads=options.threads, places=places
        )
    if "vllm" in options.engines:
        peers[VLLM] = partial(
            OurEngine, "vllm", str(weights.folder), threads=options.threads, places=places
        )
        for name, server in ((VLLM_DIRECT, BareServer), (VLLM_WORKER, WorkerOnServer)):
            peers[name] = partial(
                server, str(weights.folder), threads=options.threads, places=places
            )
    elif "torch" in options.engines:
        from loopline.bench.proofs.engine.transformers_peers import ContinuousBatch, StaticBatch

        peers[GENERATE] = partial(StaticBatch, weights.folder, threads=options.threads)
        peers[CONTINUOUS] = partial(
            ContinuousBatch, weights.folder, threads=options.threads, places=places
        )
    return peers


def _minutes(options: EngineOptions) -> float:
    """Expected minutes: a start of each of five peers for every repeat, then its tokens: a model of
    100 million parameters takes twelve times as long for them as a micro model."""
    scale = 12.0 if options.model == "random-100m" else 1.0
    engines = options.engines
    parts = 0.65 * ("torch" in engines) + 0.35 * ("llama_cpp" in engines) + 3 * ("vllm" in engines)
    seconds = sum(80.0 + scale * 1.2 * places for places in options.places)
    return options.repeats * parts * seconds / 60


PROOF = Proof(
    name="engine",
    title="engines in this process against other servers of the same weights",
    options=EngineOptions,
    minutes=_minutes,
    run=run,
    check=check,
    full={"model": "random-100m", "concurrency": "1,4,16,64"},
)
