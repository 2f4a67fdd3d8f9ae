"""The report: on a terminal, and in the output folder as Markdown, HTML and JSON."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from loopline.bench.experiments.grpo_curve.findings import CurveFigures, CurveReport
from loopline.bench.experiments.grpo_curve.tables import (
    TITLE,
    about,
    ending,
    rule,
    tables,
    verdicts,
)
from loopline.bench.report.figures import share
from loopline.bench.report.markdown import table as markdown_table
from loopline.runtime.terminal.pages.curves import Curve, Point, curves_plot
from loopline.runtime.terminal.pages.page import figure, page, table
from loopline.trainers.core.json_records import write_record
from loopline.trainers.grpo.arms.folder import REPORT
from loopline.workers.atomic_files import write_atomic

if TYPE_CHECKING:
    from rich.console import Console


def write(report: CurveReport, output: Path) -> None:
    """`report.md`, `report.html` and `report.json`."""
    write_atomic(output / "report.md", markdown(report))
    write_atomic(output / "report.html", render(report))
    write_record(output / REPORT, report)


def markdown(report: CurveReport) -> str:
    """The whole document."""
    lines = [f"# {TITLE}", "", about(report), "", *(f"- {each}" for each in verdicts(report))]
    for heading, (head, rows) in tables(report).items():
        if rows:
            lines += ["", f"{heading}:", "", *markdown_table(head, rows)]
    return "\n".join([*lines, "", rule(report), "", ending(report)]) + "\n"


def render(report: CurveReport) -> str:
    """The same as one HTML file that needs nothing else."""
    drawings = [
        (spread_plot(report), "Success on held-out puzzles: the undisturbed loops' mean "
         "with their least and greatest, and each attacked loop with its 95 % interval."),
        (loops_plot(report), "The same, every loop by itself."),
        (sampled_plot(report), "Share of all of a round's runs that were solved in training, where "
         "the best of K candidates is executed; runs that broke off are not solved."),
    ]  # fmt: skip
    parts = [
        f"<h1>{escape(TITLE)}</h1>",
        f'<p class="soft">{escape(about(report))}</p>',
        *(f'<p class="lead">{escape(each)}</p>' for each in verdicts(report)),
        '<div class="two">',
        *(figure(drawing, caption) for drawing, caption in drawings if drawing),
        "</div>",
    ]
    for heading, (head, rows) in tables(report).items():
        if rows:
            parts += [f'<p class="lead">{escape(heading)}</p>', table(head, rows)]
    parts += [f'<p class="soft">{escape(line)}</p>' for line in (rule(report), ending(report))]
    return page(TITLE, "\n".join(parts))


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


def show(report: CurveReport, output: Path, console: Console) -> None:
    """On a terminal."""
    from loopline.runtime.terminal.tables import figures

    _say(console, about(report))
    for heading, (head, rows) in tables(report).items():
        if rows:
            shown = figures(*head, words=("loop", "round", "injected", "verdict"))
            for row in rows:
                shown.add_row(*row)
            _say(console, f"\n{heading}:")
            console.print(shown)
    console.print()
    for each in report.loops:
        for violation in each.history.violations:
            _say(console, f"violation, {each.loop.name}: {violation}")
    for line in (*verdicts(report), rule(report), ending(report),
                 f"Report: {output / 'report.html'}"):  # fmt: skip
        _say(console, line)


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


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
