"""`bench bus`: the measurements, their order, and the bars."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field

from loopline.bench.proofs.bus import idle, processes
from loopline.bench.proofs.bus.peers import MESSAGE_BYTES, PEERS
from loopline.bench.proofs.bus.processes import Throughput
from loopline.bench.proofs.bus.recovery import Recovery, measure_recovery
from loopline.bench.proofs.harness import Options, Progress, Proof
from loopline.bench.proofs.outcome import Measurement, Outcome, measured
from loopline.bench.statistics import Spread, quantile, spread
from loopline.bus import Envelope, step_name, traceparent_of
from loopline.testing import Persistence, RedisProcess, running_redis
from loopline.workers.installation import require

RATE = 200.0
"""Messages per second of the latency measurement."""
OURS, FASTSTREAM = "loopline", "faststream"
MIN_DRAIN_RATIO = 3.0
MAX_P99_RATIO = 1.5
MAX_OVER_LEASE = 1.0
MAX_SWEEP_PERCENT = 2.0
MAX_IDLE_PERCENT = 1.0
MAX_TRACING_PERCENT = 3.0
_SERVERS: dict[str, tuple[Persistence, ...]] = {
    "none": ("none",),
    "everysec": ("everysec",),
    "always": ("always",),
    "both": ("none", "everysec"),
}
_RATES = (
    ("enqueue_per_second", "enqueue", "/s"),
    ("drain_per_second", "drain", "/s"),
    ("end_to_end_per_second", "end to end", "/s"),
    ("consumer_rss_mb", "RSS", "MB"),
)
_CPU = (
    ("producer_cpu_per_1000", "producer", "s"),
    ("consumer_cpu_per_1000", "consumer", "s"),
    ("server_cpu_per_1000", "server", "s"),
)
"""Fields of `Throughput` with their titles and units."""


class BusOptions(Options):
    """One producer and one consumer process, 256-byte JSON messages, handlers that do nothing; ours
    runs at its full guarantee: typed envelope and payload, lease, atomic commit with journal
    append and hand-off to a next stream."""

    messages: int = Field(default=20_000, ge=100, le=10_000_000)
    """Messages of one throughput measurement."""
    repeats: int = Field(default=3, ge=1, le=100)
    """Interleaved repeats; the medians are reported."""
    latency_seconds: float = Field(default=5.0, ge=1, le=600)
    """Length of one latency measurement."""
    persistence: Literal["none", "everysec", "always", "both"] = "both"
    """Persistence of Redis; both: none, then everysec."""
    idle_entries: int = Field(default=1_000_000, ge=1_000, le=10_000_000)
    """Number of pending entries to sweep over."""
    only_peers: bool = False
    """Leave out recovery, sweeper and idle worker."""


@dataclass(slots=True)
class Peer:
    """Results of all repeats of one peer on one server."""

    throughput: list[Throughput] = field(default_factory=list[Throughput])
    latencies: list[list[float]] = field(default_factory=list[list[float]])
    """Milliseconds, one list per repeat."""

    def rate(self, quantity: str) -> Spread:
        """Return a field of `Throughput` over the repeats."""
        return spread([getattr(repeat, quantity) for repeat in self.throughput])

    def latency(self, share: float) -> Spread:
        """Return a quantile of each repeat, in milliseconds."""
        return spread([quantile(repeat, share) for repeat in self.latencies])


def peer_measurements(persistence: str, peers: dict[str, Peer]) -> list[Measurement]:
    """Return every figure of every peer on one server."""
    server = f"appendonly {persistence}"
    figures: list[Measurement] = []
    for name, peer in peers.items():
        for group, quantities in (
            (server, _RATES), (f"{server}, CPU seconds per 1,000 messages", _CPU)
        ):  # fmt: skip
            figures += [
                measured(
                    label, peer.rate(quantity), unit, subject=name, group=group,
                    better="higher" if unit == "/s" else "lower",
                )
                for quantity, label, unit in quantities
            ]  # fmt: skip
        group = f"{server}, publication to handler at {RATE:g} messages/s"
        figures += [
            measured(
                f"p{round(100 * share)}", peer.latency(share), "ms", better="lower", subject=name,
                group=group,
            )
            for share in (0.5, 0.95, 0.99)
        ]  # fmt: skip
    return figures


def ratios(peers: dict[str, Peer], *, bars: bool, server: str = "") -> list[Measurement]:
    """Return the ratios of our medians to theirs, with the least and greatest ratio of a repeat;
    the bars are those of the first server."""
    where = f" ({server})" if server else ""

    subject = peers[OURS]

    def drained(other: str) -> Spread:
        rival = peers[other]
        repeats = zip(subject.throughput, rival.throughput, strict=True)
        per_repeat = [a.drain_per_second / b.drain_per_second for a, b in repeats]
        medians = [peer.rate("drain_per_second").median for peer in (subject, rival)]
        return Spread(medians[0] / medians[1], min(per_repeat), max(per_repeat))

    p99s = [
        quantile(a, 0.99) / quantile(b, 0.99)
        for a, b in zip(subject.latencies, peers[FASTSTREAM].latencies, strict=True)
    ]
    p99 = subject.latency(0.99).median / peers[FASTSTREAM].latency(0.99).median
    return [
        measured(
            f"drain_vs_faststream{where}", drained(FASTSTREAM), "×", better="higher",
            bar=MIN_DRAIN_RATIO if bars else None,
        ),
        measured(
            f"p99_vs_faststream{where}", Spread(p99, min(p99s), max(p99s)), "×", better="lower",
            bar=MAX_P99_RATIO if bars else None,
        ),
        measured(f"drain_vs_raw{where}", drained("raw"), "×", better="higher"),
    ]  # fmt: skip


def recovery_measurements(result: Recovery) -> list[Measurement]:
    """Return seconds from SIGKILL of a worker to the handler's start in another: the slowest
    counts."""
    return [
        measured("recovery_first_s", spread(result.first), "s", better="lower"),
        measured("recovery_last_s", spread(result.last), "s", better="lower"),
        measured(
            "recovery_s", max(result.last), "s", better="lower",
            bar=result.lease_seconds + MAX_OVER_LEASE,
        ),
    ]  # fmt: skip


def cost_measurement(name: str, percent: float, bar: float) -> Measurement:
    """Return processor time in per cent of a core."""
    return measured(name, percent, "% of a core", better="lower", bar=bar)


def tracing_percent(peer: Peer) -> float:
    """Cost of trace contexts, in per cent of the processor time that producer and consumer need for
    a message: for the run's first context, and for the context of the step that it hands over
    to."""
    count, run_id = 20_000, str(uuid.uuid4())

    def cpu_of(context: Callable[[int], str]) -> float:
        began = time.process_time()
        for turn in range(count):
            Envelope(
                type="bench.message", run_id=run_id, deadline=0.0, traceparent=context(turn)
            ).to_json()
        return time.process_time() - began

    def traced(turn: int) -> str:
        return traceparent_of(run_id, step_name(run_id, turn, 0))

    costs = [cpu_of(traced) - cpu_of(lambda _: "") for _ in range(5)]
    message = peer.rate("producer_cpu_per_1000").median + peer.rate("consumer_cpu_per_1000").median
    return 100 * 2 * spread(costs).median / count / (message / 1000)


def run(options: BusOptions, progress: Progress) -> Outcome:
    """Measure the peers on each server, then the cost and the recovery of the bus."""
    require("faststream")
    outcome = Outcome(
        about=f"One producer, one consumer, {MESSAGE_BYTES}-byte JSON, uvloop for all, Redis on "
        f"loopback. Medians of {options.repeats} (least–greatest). "
        + "; ".join(f"{name}: {what}" for name, what in PEERS.items())
    )
    progress.outcome = lambda: outcome
    asyncio.run(_measure(options, outcome, progress))
    return outcome


async def _measure(options: BusOptions, outcome: Outcome, progress: Progress) -> None:
    servers: Sequence[Persistence] = _SERVERS[options.persistence]
    for persistence in servers:
        peers = await _compare(options, persistence, outcome, progress)
        first = persistence == servers[0]
        outcome.measurements += peer_measurements(persistence, peers)
        outcome.measurements += ratios(
            peers, bars=first, server="" if first else f"appendonly {persistence}"
        )
        if first:
            percent = tracing_percent(peers[OURS])
            outcome.measurements.append(
                measured(
                    "tracing_percent", percent, "% of a message's processor time",
                    better="lower", bar=MAX_TRACING_PERCENT,
                )
            )  # fmt: skip
    if options.only_peers:
        return
    with _server("none") as server:
        progress.say("recovery after SIGKILL…")
        result = await measure_recovery(server)
        outcome.measurements += recovery_measurements(result)
        outcome.facts["lease_seconds"] = result.lease_seconds
        progress.say("idle worker…")
        idle_cost = await idle.idle_worker(server)
        outcome.measurements.append(
            cost_measurement("idle_worker_core_percent", idle_cost.worker, MAX_IDLE_PERCENT)
        )
        progress.say(f"sweeper over {options.idle_entries:,} pending entries…")
        sweep = await idle.sweep(server, options.idle_entries)
        # Worker and server together: the work counts wherever it is done.
        outcome.measurements.append(
            cost_measurement("sweeper_core_percent", sweep.both, MAX_SWEEP_PERCENT)
        )


@contextlib.contextmanager
def _server(persistence: Persistence) -> Generator[RedisProcess]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-bus-") as folder,
        running_redis(Path(folder), persistence=persistence, listen="tcp") as server,
    ):
        yield server


async def _compare(
    options: BusOptions, persistence: Persistence, outcome: Outcome, progress: Progress
) -> dict[str, Peer]:
    """Interleave the repeats, so that other load on the machine affects every peer alike."""
    with _server(persistence) as server:
        outcome.facts["server"] = str(server.binary)
        peers = {name: Peer() for name in PEERS}
        for repeat in range(options.repeats):
            for name, peer in peers.items():
                progress.say(
                    f"appendonly {persistence}, repeat {repeat + 1} of {options.repeats}: {name}…"
                )
                peer.throughput.append(await processes.throughput(server, name, options.messages))
                peer.latencies.append(
                    await processes.latencies(server, name, RATE, options.latency_seconds)
                )
        return peers


def _minutes(options: BusOptions) -> float:
    """Expected minutes. Each repeat of a peer starts seven processes, moves the messages three
    times and measures latencies."""
    repeat = len(PEERS) * (5.5 + options.messages * 3.2e-4 + options.latency_seconds)
    rest = 0.0 if options.only_peers else 55.0 + options.idle_entries * 2e-5
    return (len(_SERVERS[options.persistence]) * options.repeats * repeat + rest) / 60


PROOF = Proof(
    name="bus",
    title="bus against a raw loop and FastStream",
    options=BusOptions,
    minutes=_minutes,
    run=run,
)
