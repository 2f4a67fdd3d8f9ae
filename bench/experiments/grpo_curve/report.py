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
    """What it says, wherever it is read."""
    drawings = [
        (spread_plot(report), "Success on held-out puzzles: the undisturbed loops' mean "
         "with their least and greatest, and each attacked loop with its 95 % interval."),
        (loops_plot(report), "The same, every loop by itself."),
        (sampled_plot(report), "Share of all of a round's runs that were solved in training, where "
         "the best of K candidates is executed; runs that broke off are not solved."),
    ]  # fmt: skip
    broken = [
        f"violation, {each.loop.name}: {violation}"
        for each in report.loops
        for violation in each.history.violations
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
    """The undisturbed loops as one band, the attacked ones as lines."""
    rounds = (0, *report.settings.looked_at_rounds)
    shares = [[each.looks[number].estimate for each in report.undisturbed] for number in rounds]
    spread = Curve(
        "undisturbed",
        [
            Point(float(number), sum(found) / len(found), min(found), max(found))
            for number, found in zip(rounds, shares, strict=True)
        ],
    )
    return _plot("Success by round", [spread, *map(_curve, report.attacked)])


def loops_plot(report: CurveReport) -> str:
    """A line for each loop."""
    lines = [
        Curve(
            each.loop.name,
            [Point.at(float(number), found.estimate) for number, found in each.looks.items()],
        )
        for each in report.loops
    ]
    return _plot("Every loop", lines)


def sampled_plot(report: CurveReport) -> str:
    """What the loops saw themselves."""
    lines = [
        Curve(
            each.loop.name,
            [Point.at(float(at), solved) for at, solved in enumerate(each.history.sampled, 1)],
        )
        for each in report.loops
    ]
    return _plot("Solved in training", lines)


def last_line(report: CurveReport) -> dict[str, object]:
    """For `--json`."""
    return {
        "within_spread": report.within,
        "rises": report.rises,
        "violations": report.violations,
        "groups_under_attack": sum(each.history.groups for each in report.attacked),
        "held_out": report.settings.held_out,
        "alpha": round(report.alpha, 5),
        "detectable": None if report.detectable is None else round(report.detectable, 4),
        "loops": {each.loop.name: _numbers(each) for each in report.loops},
        "minutes": report.minutes,
    }


def _numbers(each: CurveFigures) -> dict[str, object]:
    return {
        "solved": {str(number): round(found.estimate, 4) for number, found in each.looks.items()},
        "gain": [round(end, 4) for end in (each.gain.estimate, each.gain.low, each.gain.high)],
        "within": each.within,
        "injected": each.history.injected,
        "seconds": each.history.seconds,
    }


def _curve(each: CurveFigures) -> Curve:
    points = [
        Point(float(number), found.estimate, found.low, found.high)
        for number, found in each.looks.items()
    ]
    return Curve(each.loop.name, points)


def _plot(label: str, lines: list[Curve]) -> str:
    return curves_plot(label, lines, x_label="round", say=share, least=0.0, most=1.0)
