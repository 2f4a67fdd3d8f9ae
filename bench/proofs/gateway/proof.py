"""`bench gateway`: the measurements, their order, and the bars."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from loopline.bench.proofs.gateway.load import Target, at_rate, saturated
from loopline.bench.proofs.gateway.servers import (
    DIRECT,
    LITELLM,
    OURS,
    SLOW,
    SLOW_SECONDS,
    Served,
    endpoint,
    gateway,
    litellm,
    why_no_litellm,
)
from loopline.bench.proofs.gateway.tracing import collector, side_by_side, tracing_measurements
from loopline.bench.proofs.harness import Options, Progress, Proof
from loopline.bench.proofs.outcome import Measurement, Outcome, measured
from loopline.bench.statistics import Spread, quantile, spread
from loopline.workers.settings import TracingSettings

MAX_P50_MS, MAX_P99_MS = 2.0, 6.0
MIN_THROUGHPUT_RATIO = 4.0
CALLERS = 32
WARM_UP_CALLS = 50
WINDOW_SECONDS = 1.0
"""Length of a time window in which processor times are compared."""


class GatewayOptions(Options):
    """Calls of a scripted endpoint that answers at once: directly, through a gateway with a gpu
    worker, a recorder and Redis, and through LiteLLM's proxy. Ours journals every call; LiteLLM
    keeps nothing. All run on this machine, and so does the client."""

    rate: float = Field(default=100.0, gt=0, le=10_000)
    """Calls per second of the latency measurements."""
    seconds: float = Field(default=5.0, ge=1, le=600)
    """Length of one measurement."""
    repeats: int = Field(default=3, ge=1, le=100)
    """Interleaved repeats; the medians are reported."""
    open_streams: int = Field(default=300, ge=1, le=20_000)
    """Streams that stay open to measure their memory."""
    traced_seconds: int = Field(default=60, ge=0, le=3_600)
    """Seconds in which gateways with and without traces take half of the calls each; 0 skips
    traces."""
    only_ours: bool = False
    """Leave LiteLLM out."""
    only_traces: bool = False
    """Measure only the cost of traces."""


@dataclass
class Repeats:
    """Results of all repeats of one server."""

    latencies: list[list[float]] = field(default_factory=list[list[float]])
    """Milliseconds, one list per repeat."""
    first_texts: list[list[float]] = field(default_factory=list[list[float]])
    throughput: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])
    """Milliseconds per call of its processes, at the steady rate."""

    def latency(self, share: float) -> Spread:
        return spread([quantile(repeat, share) for repeat in self.latencies])

    def first_text(self, share: float) -> Spread:
        return spread([quantile(repeat, share) for repeat in self.first_texts])


def run(options: GatewayOptions, progress: Progress) -> Outcome:
    """Raises `BenchError`."""
    outcome = Outcome(
        about=f"{options.rate:g} calls/s for {options.seconds:g} s, then {CALLERS} callers at once;"
        f" medians of {options.repeats} (least–greatest)."
    )
    missing = "left out" if options.only_ours else why_no_litellm()
    if missing:
        outcome.notes.append(f"{LITELLM}: {missing}")
    results: dict[str, Repeats] = {}
    progress.outcome = lambda: outcome
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gateway-")))
        url = stack.enter_context(endpoint(0.0))
        slow_url = stack.enter_context(endpoint(SLOW_SECONDS))
        progress.say("starting…")
        if options.traced_seconds:
            outcome.measurements = _traces(options, folder, url, slow_url, progress)
        if options.only_traces:
            return outcome
        servers = [
            Served(Target(DIRECT, url, "none", "llm"), []),
            stack.enter_context(gateway(folder, url, slow_url)),
        ]
        if not missing:
            servers.append(stack.enter_context(litellm(folder, url)))
        asyncio.run(_compare(options, servers, results, progress))
        outcome.measurements[:0] = [*_table(results), *_ratios(results)]
        progress.say(f"{options.open_streams} open streams…")
        memory = asyncio.run(_memory(servers[1], options.open_streams))
    outcome.measurements.append(measured("memory_per_stream_kb", memory, "kB", better="lower"))
    return outcome


def _traces(
    options: GatewayOptions, folder: Path, url: str, slow_url: str, progress: Progress
) -> list[Measurement]:
    progress.say("traces…")
    places = [folder / name for name in ("plain", "traced")]
    for place in places:
        place.mkdir()
    with (
        collector() as collecting,
        gateway(places[0], url, slow_url) as plain,
        gateway(places[1], url, slow_url, TracingSettings(endpoint=collecting)) as traced,
    ):
        windows = side_by_side(
            plain, traced, options.rate / 2, options.traced_seconds, WINDOW_SECONDS
        )
        return tracing_measurements(*asyncio.run(windows))


async def _compare(
    options: GatewayOptions,
    servers: Sequence[Served],
    results: dict[str, Repeats],
    progress: Progress,
) -> None:
    """Interleave the repeats, so that other load on the machine affects every server alike."""
    for server in servers:
        results[server.target.name] = Repeats()
        for stream in (False, True):
            await at_rate(server.target, options.rate / 4, WARM_UP_CALLS / 25, stream=stream)
    for repeat in range(options.repeats):
        for server in servers:
            target, figures = server.target, results[server.target.name]
            progress.say(f"repeat {repeat + 1} of {options.repeats}: {target.name}…")
            before = server.cpu_seconds
            latencies = await at_rate(target, options.rate, options.seconds, stream=False)
            figures.cpu.append(1000 * (server.cpu_seconds - before) / len(latencies))
            figures.latencies.append(latencies)
            figures.first_texts.append(
                await at_rate(target, options.rate / 4, options.seconds, stream=True)
            )
            figures.throughput.append(await saturated(target, CALLERS, options.seconds))
    for server in servers:
        server.target.close()


async def _memory(server: Served, streams: int) -> float:
    """Return kilobytes of the gateway per stream that waits for its model."""
    target = Target(OURS, server.target.url, server.target.key, SLOW)
    process = server.processes[0]
    before = process.memory_info().rss
    writers = await asyncio.gather(
        *(target.open_stream(f"What is {index} + 1?") for index in range(streams))
    )
    after = process.memory_info().rss
    for writer in writers:
        writer.close()
    return (after - before) / streams / 1000


def _table(results: dict[str, Repeats]) -> list[Measurement]:
    figures: list[Measurement] = []
    for name, repeats in results.items():
        for label, value in (("p50", repeats.latency(0.5)), ("p99", repeats.latency(0.99))):
            figures.append(
                measured(label, value, "ms", subject=name, group="whole answers", better="lower")
            )
        for label, value in (("p50", repeats.first_text(0.5)), ("p99", repeats.first_text(0.99))):
            figures.append(
                measured(
                    label, value, "ms", subject=name, group="first text of a stream",
                    better="lower",
                )
            )  # fmt: skip
        figures.append(
            measured(
                "calls", spread(repeats.throughput), "/s", subject=name, group="saturated",
                better="higher",
            )
        )  # fmt: skip
        if name != DIRECT:
            figures.append(
                measured(
                    "CPU per call", spread(repeats.cpu), "ms", subject=name, group="saturated",
                    better="lower",
                )
            )  # fmt: skip
    return figures


def _ratios(results: dict[str, Repeats]) -> list[Measurement]:
    """Return the ratios of our gateway to the direct endpoint, and to LiteLLM."""
    direct, mine = results[DIRECT], results[OURS]

    def more(first: Sequence[list[float]], peer: Sequence[list[float]], share: float) -> Spread:
        pairs = zip(first, peer, strict=True)
        return spread([quantile(a, share) - quantile(b, share) for a, b in pairs])

    figures = [
        measured(
            "overhead_p50_ms", more(mine.latencies, direct.latencies, 0.5), "ms",
            bar=MAX_P50_MS, better="lower",
        ),
        measured(
            "overhead_p99_ms", more(mine.latencies, direct.latencies, 0.99), "ms",
            bar=MAX_P99_MS, better="lower",
        ),
        measured(
            "first_text_overhead_p50_ms", more(mine.first_texts, direct.first_texts, 0.5), "ms",
            better="lower",
        ),
    ]  # fmt: skip
    if (peer := results.get(LITELLM)) is not None:
        pairs = zip(mine.throughput, peer.throughput, strict=True)
        figures.append(
            measured(
                "throughput_vs_litellm", spread([a / b for a, b in pairs]), "×",
                bar=MIN_THROUGHPUT_RATIO, better="higher",
            )
        )  # fmt: skip
    return figures


def _minutes(options: GatewayOptions) -> float:
    """Expected minutes. Each repeat of a server is three measurements; LiteLLM takes half a minute
    to start."""
    traces = 10 + options.traced_seconds if options.traced_seconds else 0
    if options.only_traces:
        return traces / 60
    servers = 2 if options.only_ours else 3
    calls = servers * (4 + options.repeats * 3 * options.seconds)
    return (20 + 30 * (servers - 2) + calls + traces) / 60


PROOF = Proof(
    name="gateway",
    title="the gateway, its endpoint and LiteLLM's proxy",
    options=GatewayOptions,
    minutes=_minutes,
    run=run,
)
