"""From single measurements to the figures that are reported: medians, spreads, ratios, bars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from loopline.bench.proofs.bus.idle import Cost
from loopline.bench.proofs.bus.processes import Throughput
from loopline.bench.proofs.bus.recovery import Recovery
from loopline.bench.statistics import Spread, quantile, spread

MIN_DRAIN_RATIO = 3.0
MAX_P99_RATIO = 1.5
MAX_OVER_LEASE = 1.0
MAX_SWEEP_PERCENT = 2.0
MAX_IDLE_PERCENT = 1.0


@dataclass(slots=True)
class Peer:
    """All repeats of one peer on one server."""

    throughput: list[Throughput] = field(default_factory=list[Throughput])
    latencies: list[list[float]] = field(default_factory=list[list[float]])
    """Milliseconds, a list per repeat."""

    def spread(self, figure: Callable[[Throughput], float]) -> Spread:
        """Of a figure over the repeats."""
        return spread([figure(repeat) for repeat in self.throughput])

    def latency(self, share: float) -> Spread:
        """Of the repeats' quantiles, in milliseconds."""
        return spread([quantile(repeat, share) for repeat in self.latencies])


@dataclass(slots=True)
class Comparison:
    """The peers on one server."""

    persistence: str
    server: str
    peers: dict[str, Peer]

    def drain_ratio(self, peer: str) -> float:
        """Ours to theirs, of the medians."""
        return _ratio(
            self.peers["loopline"].spread(lambda each: each.drain_per_second)[0],
            self.peers[peer].spread(lambda each: each.drain_per_second)[0],
        )

    def p99_ratio(self, peer: str) -> float:
        return _ratio(self.peers["loopline"].latency(0.99)[0], self.peers[peer].latency(0.99)[0])


@dataclass(slots=True)
class Report:
    """Everything that one `bench bus` found."""

    comparisons: list[Comparison]
    recovery: Recovery | None = None
    idle: Cost | None = None
    sweep: Cost | None = None
    idle_entries: int = 0

    @property
    def headline(self) -> Comparison:
        return self.comparisons[0]

    def bars(self) -> dict[str, tuple[float, str, bool]]:
        """Per bar: the figure, what is demanded, and whether it is met."""
        drain = self.headline.drain_ratio("faststream")
        p99 = self.headline.p99_ratio("faststream")
        bars = {
            "drain_vs_faststream": (drain, f">= {MIN_DRAIN_RATIO:g}", drain >= MIN_DRAIN_RATIO),
            "p99_vs_faststream": (p99, f"<= {MAX_P99_RATIO:g}", p99 <= MAX_P99_RATIO),
        }
        if self.recovery is not None:
            slowest = max(self.recovery.last)
            limit = self.recovery.lease_seconds + MAX_OVER_LEASE
            bars["recovery_s"] = (slowest, f"<= {limit:g} (lease + 1 s)", slowest <= limit)
        if self.sweep is not None:
            cost = self.sweep.both
            bars["sweeper_core_percent"] = (
                cost, f"< {MAX_SWEEP_PERCENT:g}", cost < MAX_SWEEP_PERCENT,
            )  # fmt: skip
        if self.idle is not None:
            cost = self.idle.worker
            bars["idle_worker_core_percent"] = (
                cost, f"< {MAX_IDLE_PERCENT:g}", cost < MAX_IDLE_PERCENT,
            )  # fmt: skip
        return bars


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs
