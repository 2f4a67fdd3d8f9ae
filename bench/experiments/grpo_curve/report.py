"""The report: its document, and the line of JSON."""

from __future__ import annotations

from loopline.bench.experiments.document import Document, Section
from loopline.bench.experiments.grpo_curve.figures import CurveFigures, CurveReport
from loopline.bench.experiments.grpo_curve.tables import (
    TITLE,
    about,
    ending,
    rule,
    tables,
    verdicts,
)
from loopline.bench.report.figures import share
from loopline.runtime.terminal.pages.curves import Curve, Point, curves_plot


def document(report: CurveReport) -> Document:
    """Document of the report for a terminal, Markdown and HTML."""
    drawings = [
        (spread_plot(report), "Success on held-out puzzles: the undisturbed loops' mean, "
         "lowest and highest value, and each attacked loop with its 95 % interval."),
        (loops_plot(report), "The same for each loop."),
        (sampled_plot(report), "Share of a round's training runs that were solved (the best of K "
         "candidates is executed); aborted runs count as not solved."),
    ]  # fmt: skip
    broken = [
        f"violation, {loop_figures.loop.name}: {violation}"
        for loop_figures in report.loops
        for violation in loop_figures.history.violations
    ]
    return Document(
        title=TITLE,
        about=about(report),
        sections=[Section(tables(report), drawings)],
        verdicts=(*broken, *verdicts(report)),
        closing=(rule(report), ending(report)),
        words=("loop", "round", "injected", "verdict"),
    )


def spread_plot(report: CurveReport) -> str:
    """Plot the undisturbed loops as one band and the attacked ones as lines."""
    rounds = (0, *report.settings.measured_rounds)
    shares = [[curve.looks[number].estimate for curve in report.undisturbed] for number in rounds]
    spread = Curve(
        "undisturbed",
        [
            Point(float(number), sum(values) / len(values), min(values), max(values))
            for number, values in zip(rounds, shares, strict=True)
        ],
    )
    return _plot("Success by round", [spread, *map(_curve, report.attacked)])


def loops_plot(report: CurveReport) -> str:
    """Plot one line per loop."""
    lines = [
        Curve(
            curve.loop.name,
            [Point.at(float(number), bounds.estimate) for number, bounds in curve.looks.items()],
        )
        for curve in report.loops
    ]
    return _plot("Every loop", lines)


def sampled_plot(report: CurveReport) -> str:
    """Plot the success that the loops measured themselves."""
    lines = [
        Curve(
            curve.loop.name,
            [Point.at(float(at), solved) for at, solved in enumerate(curve.history.sampled, 1)],
        )
        for curve in report.loops
    ]
    return _plot("Solved in training", lines)


def last_line(report: CurveReport) -> dict[str, object]:
    """Return the figures that `--json` prints."""
    return {
        "within_spread": report.within,
        "rises": report.rises,
        "violations": report.violations,
        "groups_under_attack": sum(curve.history.groups for curve in report.attacked),
        "held_out": report.settings.held_out,
        "alpha": round(report.alpha, 5),
        "detectable": None if report.detectable is None else round(report.detectable, 4),
        "loops": {curve.loop.name: _numbers(curve) for curve in report.loops},
        "minutes": report.minutes,
    }


def _numbers(curve: CurveFigures) -> dict[str, object]:
    return {
        "solved": {
            str(number): round(bounds.estimate, 4) for number, bounds in curve.looks.items()
        },
        "gain": [round(end, 4) for end in (curve.gain.estimate, curve.gain.low, curve.gain.high)],
        "within": curve.within,
        "injected": curve.history.injected,
        "seconds": curve.history.seconds,
    }


def _curve(figures: CurveFigures) -> Curve:
    points = [
        Point(float(number), bounds.estimate, bounds.low, bounds.high)
        for number, bounds in figures.looks.items()
    ]
    return Curve(figures.loop.name, points)


def _plot(label: str, lines: list[Curve]) -> str:
    return curves_plot(label, lines, x_label="round", say=share, least=0.0, most=1.0)
