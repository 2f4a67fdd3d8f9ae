"""The report: its document."""

from __future__ import annotations

from loopline.bench.experiments.document import Document, Section, Table
from loopline.bench.experiments.staleness.cells import TITLES
from loopline.bench.experiments.staleness.figures import CellFigures, StalenessReport
from loopline.bench.report.figures import span
from loopline.runtime.terminal.pluralize import format_count


def document(report: StalenessReport) -> Document:
    """Document of the report for a terminal, Markdown and HTML."""
    settings, warm = report.settings, report.warm_start
    return Document(
        title="Learning from old samples",
        about=(
            f"{settings.updates} updates, {settings.demo.reinforced.episodes} puzzles each, "
            f"{settings.demo.held_out:,} held-out puzzles of "
            f"{format_count(len(settings.demo.seeds), 'seed')}; warm start {warm[0]:.1%} "
            f"({100 * warm[1]:.1f}–{100 * warm[2]:.1f}); {report.tokens:,} tokens, "
            f"{report.cpu_minutes:.1f} CPU-minutes"
        ),
        sections=[Section({"Success and effective sample size (ESS)": table(report)})],
        closing=[
            f"{cell.age} versions ago, {TITLES[cell.correction]}: stopped: {why}"
            for cell in report.cells
            for why in dict.fromkeys(cell.stopped)
        ],
        words=("correction",),
    )


def table(report: StalenessReport) -> Table:
    """Table with one row per age and correction."""
    head = ["versions ago", "correction", "success", "95 %", "over warm start", "95 %", "ESS",
            "95 %", "clipped", "stopped"]  # fmt: skip
    return head, [_row(cell) for cell in report.cells]


def _row(cell: CellFigures) -> list[str]:
    sizes = cell.effective_samples
    return [
        str(cell.age),
        TITLES[cell.correction],
        f"{cell.success[0]:.1%}",
        span(*cell.success[1:]),
        f"{100 * cell.gain[0]:+.1f}",
        f"{100 * cell.gain[1]:+.1f} to {100 * cell.gain[2]:+.1f}",
        *(("–", "–") if sizes is None else (f"{sizes[0]:.3f}", f"{sizes[1]:.3f}–{sizes[2]:.3f}")),
        f"{cell.clipped:.1%}",
        str(len(cell.stopped) or "–"),
    ]
