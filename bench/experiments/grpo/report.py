"""The report: its document, and the line of JSON."""

from __future__ import annotations

from loopline.bench.experiments.document import Document, Section
from loopline.bench.experiments.grpo.figures import GrpoReport
from loopline.bench.experiments.grpo.plots import curves_plots, differences_plot, solved_plot
from loopline.bench.experiments.grpo.tables import about, ending, tables, title


def document(report: GrpoReport) -> Document:
    """What it says, wherever it is read. What models wrote is in it as text."""
    drawings = [
        (
            solved_plot(report),
            "Held-out puzzles solved, with the 95 % interval; the small dots are the seeds.",
        )
    ]
    if report.differences:
        drawings.append(
            (
                differences_plot(report),
                "What one arm solves more than another, in percentage points, with the 95 % "
                "interval; grey where it holds zero.",
            )
        )
    caption = (
        "Greedy success on puzzles of the validation split, mean of the seeds and their range, "
        "over {}."
    )
    over = ("completions drawn or answers imitated", "tokens through the model in training")
    drawings += [
        (drawing, caption.format(what))
        for drawing, what in zip(curves_plots(report), over, strict=True)
    ]
    return Document(
        title=title(report),
        about=about(report),
        sections=[Section(tables(report), drawings)],
        closing=(report.published, ending(report)),
        words=("failures", "about", "answers", "finding", "why"),
    )


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
