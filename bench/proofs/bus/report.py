"""The report of `bench bus`: tables for people, a line of JSON for machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from loopline.bench.proofs.bus.figures import Comparison, Peer, Report
from loopline.bench.proofs.bus.peers import MESSAGE_BYTES, PEERS
from loopline.bench.statistics import Spread
from loopline.runtime.terminal.tables import figures


def show(report: Report, console: Console) -> None:
    """Print every figure with its spread, then the bars."""
    for comparison in report.comparisons:
        console.print(_peers(comparison))
    if report.recovery is not None:
        first, last = sorted(report.recovery.first), sorted(report.recovery.last)
        console.print(
            f"Recovery, lease {report.recovery.lease_seconds:g} s: seconds from SIGKILL of a "
            f"worker to the handler's start in another: first message {first[0]:.2f}–"
            f"{first[-1]:.2f}, last message {last[0]:.2f}–{last[-1]:.2f} ({len(last)} kills)"
        )
    if report.sweep is not None:
        console.print(
            f"Sweeper over {report.idle_entries:,} pending entries: worker "
            f"{report.sweep.worker:.2f} % + server {report.sweep.server:.2f} % of a core "
            f"({report.sweep.seconds:.0f} s)"
        )
    if report.idle is not None:
        console.print(
            f"Idle worker: {report.idle.worker:.2f} % of a core, its server "
            f"{report.idle.server:.2f} % ({report.idle.seconds:.0f} s)"
        )
    table = figures("bar", "figure", "demanded", "", words=("bar", "demanded", ""), title="Bars")
    for name, (figure, demanded, met) in report.bars().items():
        table.add_row(name, f"{figure:.2f}", demanded, "met" if met else "[red]missed[/red]")
    console.print(table)


_Column = tuple[str, Callable[[Peer], Spread], int]
"""Heading, figure, decimal places."""

_RATES: tuple[_Column, ...] = (
    ("enqueue /s", lambda peer: peer.spread(lambda each: each.enqueue_per_second), 0),
    ("drain /s", lambda peer: peer.spread(lambda each: each.drain_per_second), 0),
    ("end to end /s", lambda peer: peer.spread(lambda each: each.end_to_end_per_second), 0),
    ("RSS MB", lambda peer: peer.spread(lambda each: each.consumer_rss_mb), 0),
)
_LATENCIES: tuple[_Column, ...] = (
    ("p50 ms", lambda peer: peer.latency(0.50), 2),
    ("p95 ms", lambda peer: peer.latency(0.95), 2),
    ("p99 ms", lambda peer: peer.latency(0.99), 2),
)
_CPU: tuple[_Column, ...] = (
    ("producer", lambda peer: peer.spread(lambda each: each.producer_cpu_per_1000), 3),
    ("consumer", lambda peer: peer.spread(lambda each: each.consumer_cpu_per_1000), 3),
    ("server", lambda peer: peer.spread(lambda each: each.server_cpu_per_1000), 3),
)


def _peers(comparison: Comparison) -> Group:
    repeats = len(next(iter(comparison.peers.values())).throughput)
    return Group(
        f"\n{comparison.server} on loopback, appendonly {comparison.persistence}. One producer, "
        f"one consumer, {MESSAGE_BYTES}-byte JSON, uvloop for all. Medians of {repeats} "
        "(least–greatest).",
        *(f"  {name}: {what}" for name, what in PEERS.items()),
        _table("Throughput", comparison, _RATES),
        _table("Publication to handler at 200 messages/s", comparison, _LATENCIES),
        _table("CPU seconds per 1,000 messages", comparison, _CPU),
        f"ours drains at {comparison.drain_ratio('faststream'):.2f} × FastStream and "
        f"{comparison.drain_ratio('raw'):.2f} × the raw loop; its p99 is "
        f"{comparison.p99_ratio('faststream'):.2f} × FastStream's",
    )


def _table(title: str, comparison: Comparison, columns: Sequence[_Column]) -> Table:
    table = figures("peer", *(heading for heading, _, _ in columns), words=("peer",), title=title)
    for name, peer in comparison.peers.items():
        cells: list[str] = []
        for _, figure, digits in columns:
            cells.append(figure(peer).text(f",.{digits}f", between="\n"))
        table.add_row(name, *cells)
    return table


def as_json(report: Report) -> dict[str, Any]:
    """Plain values; the bars' figures at the top."""
    headline = report.headline
    bars = report.bars()
    data: dict[str, Any] = {name: round(figure, 4) for name, (figure, _, _) in bars.items()}
    data["drain_vs_raw"] = round(headline.drain_ratio("raw"), 4)
    if report.recovery is not None:
        data["lease_s"] = report.recovery.lease_seconds
    data["met"] = {name: met for name, (_, _, met) in bars.items()}
    data["servers"] = [
        {
            "server": comparison.server,
            "appendonly": comparison.persistence,
            "drain_vs_faststream": round(comparison.drain_ratio("faststream"), 4),
            "drain_vs_raw": round(comparison.drain_ratio("raw"), 4),
            "p99_vs_faststream": round(comparison.p99_ratio("faststream"), 4),
            "peers": {name: _figures(peer) for name, peer in comparison.peers.items()},
        }
        for comparison in report.comparisons
    ]
    return data


def _figures(peer: Peer) -> dict[str, list[float]]:
    """Median, least, greatest."""
    found = {
        name: peer.spread(lambda each, n=name: getattr(each, n))
        for name in (
            "enqueue_per_second", "drain_per_second", "end_to_end_per_second",
            "producer_cpu_per_1000", "consumer_cpu_per_1000", "server_cpu_per_1000",
            "consumer_rss_mb",
        )
    }  # fmt: skip
    found |= {f"p{int(100 * share)}_ms": peer.latency(share) for share in (0.5, 0.95, 0.99)}
    return {name: [round(value, 4) for value in values] for name, values in found.items()}
