"""The tables of `bench training`."""

from __future__ import annotations

from rich.console import Console

from loopline.bench.proofs.training.figures import OURS, Report
from loopline.runtime.terminal.tables import figures


def show(report: Report, console: Console) -> None:
    """Print every figure with its spread, then the ratios."""
    rows = report.prepared
    console.print(
        f"\n{report.size}, {rows.precision}, {report.machine}; {rows.rows:,} rows of "
        f"{rows.mean:.0f} tokens (longest {rows.longest:,}), {rows.learned / rows.tokens:.1%} of "
        "them learned. Medians over the repeats (least–greatest); padding is no token."
    )
    for name, about in report.about.items():
        console.print(f"  {name}: {about}")
    table = figures(
        "", "tokens/s", "padding", "tokens\nper step", "tokens\nat once", "peak MB", words=("",)
    )
    for name, runs in report.figures.items():
        last = runs[-1]
        table.add_row(
            name,
            report.rate(name).text(",.0f"),
            f"{last.padding_share:.1%}",
            f"{last.tokens / last.steps:,.0f}",
            f"{(last.tokens + last.padding) / last.forwards:,.0f}",
            report.memory(name).text(",.0f"),
        )
    console.print(table)
    others = [name for name in report.figures if name != OURS]
    if others:
        ours_to = "tokens/s, ours to"
        ratios = figures(ours_to, "median (least–greatest)", words=(ours_to,))
        for name in others:
            ratios.add_row(name, report.ratio(name).text(".2f"))
        console.print(ratios)
