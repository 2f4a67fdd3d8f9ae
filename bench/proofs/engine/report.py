"""The tables of `bench engine`."""

from __future__ import annotations

import math

from rich.console import Console

from loopline.bench.proofs.engine.figures import Figures, Report
from loopline.bench.proofs.engine.workload import Measured
from loopline.runtime.terminal.tables import figures


def show(report: Report, console: Console) -> None:
    """Print every figure with its spread, then the ratios."""
    console.print(
        f"\n{report.model}; GGUF {report.precision}, torch float32; {report.machine}. Medians over "
        "the repeats (least–greatest); latencies over all their requests and tokens, – where a "
        "peer does not show them."
    )
    for name, about in report.about.items():
        console.print(f"  {name}: {about}")
    for places, peers in report.figures.items():
        table = figures(
            "", "tokens/s", "first\ntoken\nms p50", "p99", "per\ntoken\nms p50", "p99",
            "request\ns p99", "prompt\ncomputed", "reused",
            words=("",), title=f"{places} in flight",
        )  # fmt: skip
        table.padding = (0, 1, 0, 0)  # Else nine columns would have no room on 80.
        for name, own in peers.items():
            table.add_row(name, *_cells(own))
        console.print(table)
    if report.batched:
        theirs, ours = zip(*report.batched, strict=True)
        console.print(
            "16 sequences of 64 tokens behind one prompt of 300: llama-batched-bench "
            f"{_range(theirs)} s, ours {_range(ours)} s"
        )
    table = figures(
        "ratio", "median (least–greatest)", words=("ratio",),
        title="Tokens per second, ours to theirs",
    )  # fmt: skip
    for name, ratio in report.ratios().items():
        table.add_row(name, ratio.text(".2f"))
    console.print(table)


def _cells(figures: Figures) -> list[str]:
    middle, least, greatest = figures.rate
    computed, reused = figures.prompt

    def first(run: Measured) -> list[float]:
        return run.first_token

    def each(run: Measured) -> list[float]:
        return run.per_token

    return [
        f"{middle:,.0f}\n({least:,.0f}–{greatest:,.0f})",
        _ms(figures.seconds(first, 0.5)),
        _ms(figures.seconds(first, 0.99)),
        _ms(figures.seconds(each, 0.5)),
        _ms(figures.seconds(each, 0.99)),
        _told(figures.seconds(lambda run: run.whole, 0.99), ".2f"),
        f"{computed:,}" if computed or reused else "?",
        f"{reused:,}" if computed or reused else "?",
    ]


def _ms(seconds: float) -> str:
    return _told(seconds * 1000, ",.1f")


def _told(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def _range(values: tuple[float, ...]) -> str:
    return f"{min(values):.2f}–{max(values):.2f}"
