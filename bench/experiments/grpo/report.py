"""The report: its document, and the line of JSON."""

from __future__ import annotations

from loopline.bench.experiments.document import Document, Section
from loopline.bench.experiments.grpo.figures import GrpoReport
from loopline.bench.experiments.grpo.tables import about, ending, tables, title
from loopline.bench.experiments.intervals import differences_plot, solved_plot
from loopline.bench.report.figures import share
from loopline.runtime.terminal.pages.curves import Curve, Point, curves_plot


def document(report: GrpoReport) -> Document:
    """Document of the report for a terminal, Markdown and HTML. Text of models stays text."""
    drawings = [
        (
            solved_plot(
                (
                    entry.arm,
                    entry.success,
                    [seed_figures.estimate for seed_figures in entry.by_seed.values()],
                )
                for entry in report.arms
            ),
            "Held-out puzzles solved, with the 95 % interval; the small dots are the seeds.",
        )
    ]
    if report.differences:
        drawings.append(
            (
                differences_plot(
                    (entry.first, entry.second, entry.gap) for entry in report.differences
                ),
                "Difference between two arms, in percentage points, with the 95 % interval; grey "
                "if it contains zero.",
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


def curves_plots(report: GrpoReport) -> tuple[str, str]:
    """Plot greedy success on validation puzzles over samples, and over tokens; empty without a
    curve."""
    arms = [arm for arm in report.arms if len(arm.curve) > 1]
    return (
        _curves([(e.arm, [(p.samples, p.success, p.low, p.high) for p in e.curve]) for e in arms],
                "samples"),
        _curves([(e.arm, [(p.tokens, p.success, p.low, p.high) for p in e.curve]) for e in arms],
                "tokens"),
    )  # fmt: skip


def _curves(lines: list[tuple[str, list[tuple[float, float, float, float]]]], over: str) -> str:
    curves = [
        Curve(name, [Point(*values) for values in coordinates]) for name, coordinates in lines
    ]
    return curves_plot(
        f"Success over {over}", curves, x_label=f"{over} in training", say=share, least=0.0
    )


def last_line(report: GrpoReport) -> dict[str, object]:
    """Return the figures that `--json` prints."""
    return {
        "game": report.settings.game.name,
        "seeds": list(report.settings.seeds),
        "held_out": report.settings.held_out,
        "arms": {
            arm.arm: {
                "solved": round(arm.success.estimate, 4),
                "low": round(arm.success.low, 4),
                "high": round(arm.success.high, 4),
                "seeds": [round(bounds.estimate, 4) for bounds in arm.by_seed.values()],
                "samples": round(arm.samples),
                "tokens": round(arm.tokens),
                "tuning": str(arm.tuning),
            }
            for arm in report.arms
        },
        "differences": {
            f"{arm.first} - {arm.second}": {
                "points": round(100 * arm.gap.estimate, 2),
                "low": round(100 * arm.gap.low, 2),
                "high": round(100 * arm.gap.high, 2),
                "finding": arm.verdict,
            }
            for arm in report.differences
        },
        "baselines": {name: round(arm.estimate, 4) for name, arm in report.baselines.items()},
        "minutes": report.minutes,
        "cpu_minutes": report.cpu_minutes,
    }
