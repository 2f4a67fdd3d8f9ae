"""The report: its document."""

from __future__ import annotations

from loopline.bench.experiments.document import Document, Section, Table
from loopline.bench.experiments.staleness.cells import TITLES
from loopline.bench.experiments.staleness.figures import CellFigures, StalenessReport
from loopline.bench.report.figures import span
from loopline.runtime.terminal.pluralize import format_count


def document(report: StalenessReport) -> Document:
    """What it says, wherever it is read."""
    settings, warm = report.settings, report.warm_start
    return Document(
        title="Learning from samples of the past",
        about=(
            f"{settings.updates} updates, {settings.demo.reinforced.episodes} puzzles each, "
            f"{settings.demo.held_out:,} held-out puzzles of "
            f"{format_count(len(settings.demo.seeds), 'seed')}; warm start {warm[0]:.1%} "
            f"({100 * warm[1]:.1f}–{100 * warm[2]:.1f}); {report.tokens:,} tokens, "
            f"{report.cpu_minutes:.1f} CPU-minutes"
        ),
        sections=[Section({"Success and effective sample size (ESS)": table(report)})],
        closing=[
            f"{one.age} versions ago, {TITLES[one.correction]}: stopped: {why}"
            for one in report.cells
            for why in dict.fromkeys(one.stopped)
        ],
        words=("correction",),
    )


def table(report: StalenessReport) -> Table:
    """A row for each age and correction."""
    head = ["versions ago", "correction", "success", "95 %", "over warm start", "95 %", "ESS",
            "95 %", "clipped", "stopped"]  # fmt: skip
    return head, [_row(one) for one in report.cells]


def _row(one: CellFigures) -> list[str]:
    sizes = one.effective_samples
    return [
        str(one.age),
        TITLES[one.correction],
        f"{one.success[0]:.1%}",
        span(*one.success[1:]),
        f"{100 * one.gain[0]:+.1f}",
        f"{100 * one.gain[1]:+.1f} to {100 * one.gain[2]:+.1f}",
        *(("–", "–") if sizes is None else (f"{sizes[0]:.3f}", f"{sizes[1]:.3f}–{sizes[2]:.3f}")),
        f"{one.clipped:.1%}",
        str(len(one.stopped) or "–"),
    ]
