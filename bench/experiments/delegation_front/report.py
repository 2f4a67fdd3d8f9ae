"""The report: its document, with the fronts drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loopline.bench.experiments.delegation_front.cells import BIG, SMALL
from loopline.bench.experiments.delegation_front.figures import (
    BASELINES,
    CASCADES,
    SCORED,
    UNTRAINED,
    FrontReport,
    RuleFigures,
    TrainedFigures,
    verdict,
)
from loopline.bench.experiments.document import Document, Section, Table
from loopline.bench.experiments.intervals import points
from loopline.bench.report.figures import dollars, share, span
from loopline.bench.route.plot import cost_axes
from loopline.runtime.terminal.pages import svg

WIDTH, HEIGHT = 560.0, 360.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 14.0, 14.0, 44.0
_FAMILIES = {
    UNTRAINED: ("the untrained planner", "arm-0"),
    CASCADES: ("cascades by log-probability", "arm-2"),
    SCORED: ("cascades by a learned score", "arm-3"),
    "alone": ("the same for every question", "arm-4"),
}


def document(report: FrontReport) -> Document:
    """Document of the report for a terminal, Markdown and HTML."""
    settings = report.settings
    small, big = settings.prices["slm"], settings.prices["llm"]
    tables = {
        "Trained with reward = right − λ · dollars": trained_table(report.trained),
        **{
            f"Baseline: {title}": baseline_table(report.baselines[name])
            for name, (title, _) in _FAMILIES.items()
        },
    }
    return Document(
        title="When to hand over: a planner rewarded for right answers, minus λ · dollars",
        about=(
            f"{settings.held_out:,} held-out questions, seeds "
            f"{', '.join(map(str, settings.seeds))}; {BIG} at ${big.prompt:g} and "
            f"${big.completion:g} per million prompt and completion tokens, {SMALL} at "
            f"${small.prompt:g} and ${small.completion:g}; {report.cpu_minutes:.1f} CPU-minutes. "
            "Costs include the planner's own decision, for which the big model reads the question"
        ),
        sections=[Section(tables, drawings=[(plot(report), _CAPTION)])],
        verdicts=[verdict(report.trained, name) for name in BASELINES],
        words=("setting",),
    )


_CAPTION = (
    "Accuracy against dollars: each λ of the trained planner with its 95 % intervals, and every "
    "setting of the baselines."
)


def trained_table(trained: Sequence[TrainedFigures]) -> Table:
    """Table with one row per λ."""
    head = ["λ", "right", "95 %", "$ per 1,000", "95 %", "itself", "whole", "parts",
            "on the front", *(f"above {name}" for name in BASELINES)]  # fmt: skip
    return head, [
        [
            f"{figures.dollar_weight:g}",
            *_figures(figures),
            *(share(part, 0) for part in figures.decisions),
            "yes" if figures.on_front else "no",
            *(points(figures.above[name]) for name in BASELINES),
        ]
        for figures in trained
    ]


def baseline_table(rules: Iterable[RuleFigures]) -> Table:
    """Table with one row per setting."""
    head = ["setting", "right", "95 %", "$ per 1,000", "95 %"]
    return head, [[figures.name, *_figures(figures)] for figures in rules]


def plot(report: FrontReport) -> str:
    """Plot every rule as a dot, and the trained ones with intervals, from cheap to expensive."""
    families = [
        *((title, colour, report.baselines[name]) for name, (title, colour) in _FAMILIES.items()),
        ("trained", "arm-1", report.trained),
    ]
    rules = [figures for _, _, family in families for figures in family]
    x = svg.Scale(
        0.0, max(1000 * figures.dollars.high for figures in rules) * 1.1 or 1.0,
        _LEFT, WIDTH - _RIGHT,
    )  # fmt: skip
    y = svg.Scale(
        max(0.0, min(figures.accuracy.low for figures in rules) - 0.03),
        min(1.0, max(figures.accuracy.high for figures in rules) + 0.03),
        HEIGHT - _BOTTOM, _TOP,
    )  # fmt: skip
    parts = cost_axes(x, y, HEIGHT)
    for number, (title, colour, family) in enumerate(families):
        parts += [_spot(x, y, title, colour, figures) for figures in family]
        at = HEIGHT - _BOTTOM - 14.0 * (len(families) - number)
        parts.append(svg.tag("circle", cx=WIDTH - 210.0, cy=at, r=4.5, class_=f"dot {colour}"))
        parts.append(svg.text(WIDTH - 200.0, at + 4, title, "tick"))
    return svg.picture(WIDTH, HEIGHT, "Accuracy against dollars", *parts)


def _spot(x: svg.Scale, y: svg.Scale, title: str, colour: str, figures: RuleFigures) -> str:
    cost, right = figures.dollars, figures.accuracy
    at_x, at_y = x(1000 * cost.estimate), y(right.estimate)
    words = f"{title}, {figures.name}: {share(right.estimate)}, {dollars(1000 * cost.estimate)}"
    interval = (
        svg.line(x(1000 * cost.low), at_y, x(1000 * cost.high), at_y, f"interval {colour}"),
        svg.line(at_x, y(right.high), at_x, y(right.low), f"interval {colour}"),
    )
    return svg.tag(
        "g",
        svg.hint(words),
        *(interval if isinstance(figures, TrainedFigures) else ()),
        svg.tag("circle", cx=at_x, cy=at_y, r=4.5, class_=f"dot {colour}"),
    )


def _figures(figures: RuleFigures) -> list[str]:
    return [
        share(figures.accuracy.estimate),
        span(figures.accuracy.low, figures.accuracy.high),
        dollars(1000 * figures.dollars.estimate),
        f"{dollars(1000 * figures.dollars.low)} – {dollars(1000 * figures.dollars.high)}",
    ]
