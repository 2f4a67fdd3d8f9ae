"""The report: on a terminal, and in the output folder as Markdown, HTML and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loopline.bench.experiments.grpo import page
from loopline.bench.experiments.grpo.figures import GrpoReport
from loopline.bench.experiments.grpo.tables import about, ending, tables, title
from loopline.bench.report.markdown import table
from loopline.trainers.core.json_records import write_record
from loopline.trainers.grpo.arms.folder import REPORT
from loopline.workers.atomic_files import write_atomic

if TYPE_CHECKING:
    from rich.console import Console


def write(report: GrpoReport, output: Path) -> None:
    """`report.md`, `report.html` and `report.json`."""
    write_atomic(output / "report.md", markdown(report))
    write_atomic(output / "report.html", page.render(report))
    write_record(output / REPORT, report)


def markdown(report: GrpoReport) -> str:
    """The whole document."""
    lines = [f"# {title(report)}", "", about(report)]
    for heading, (head, rows) in tables(report).items():
        if rows:
            lines += ["", f"{heading}:", "", *table(head, rows)]
    return "\n\n".join(filter(None, ("\n".join(lines), report.published, ending(report)))) + "\n"


def show(report: GrpoReport, output: Path, console: Console) -> None:
    """On a terminal."""
    from loopline.runtime.terminal.tables import figures

    _say(console, about(report))
    for heading, (head, rows) in tables(report).items():
        if rows:
            words = (head[0], "failures", "about", "answers", "finding", "why")
            shown = figures(*head, words=words)
            for row in rows:
                shown.add_row(*map(_plain, row))
            # Not the table's title: that is folded where the table is narrow.
            _say(console, f"\n{heading}:")
            console.print(shown)
    console.print()
    for line in (report.published, ending(report), f"Report: {output / 'report.html'}"):
        if line:
            _say(console, line)


def last_line(report: GrpoReport) -> dict[str, object]:
    """For `--json`."""
    return {
        "game": report.settings.game.name,
        "seeds": list(report.settings.seeds),
        "held_out": report.settings.held_out,
        "arms": {
            each.arm: {
                "solved": round(each.success.estimate, 4),
                "low": round(each.success.low, 4),
                "high": round(each.success.high, 4),
                "seeds": [round(found.estimate, 4) for found in each.by_seed.values()],
                "samples": round(each.samples),
                "tokens": round(each.tokens),
                "tuning": str(each.tuning),
            }
            for each in report.arms
        },
        "differences": {
            f"{each.first} - {each.second}": {
                "points": round(100 * each.gap.estimate, 2),
                "low": round(100 * each.gap.low, 2),
                "high": round(100 * each.gap.high, 2),
                "finding": each.verdict,
            }
            for each in report.differences
        },
        "baselines": {name: round(each.estimate, 4) for name, each in report.baselines.items()},
        "minutes": report.minutes,
        "cpu_minutes": report.cpu_minutes,
    }


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _plain(text: str) -> str:
    """What a model wrote is no markup of the terminal's."""
    from rich.markup import escape

    return escape(text)
