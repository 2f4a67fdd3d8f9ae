"""The drawing of a comparison: accuracy against dollars."""

from __future__ import annotations

from loopline.bench.report.figures import dollars, share, span
from loopline.bench.route.comparison import Comparison, RuleFigures
from loopline.bench.route.splits import BIG, LADDER, ORACLE, ROUTER, SMALL
from loopline.runtime.terminal.pages import svg

WIDTH, HEIGHT = 460.0, 330.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 14.0, 14.0, 44.0
_COLOURS = {ROUTER: "arm-1", BIG: "arm-0", SMALL: "arm-2", LADDER: "arm-3", ORACLE: "arm-4"}


def accuracy_against_dollars(comparison: Comparison) -> str:
    """Plot every rule with its intervals, the line of random mixing, and the lines of
    thresholds."""
    rules = {rule.name: rule for rule in comparison.rules}
    costs = [rule.cost.high * 1000 for rule in comparison.rules]
    costs += [cost * 1000 for curve in comparison.curves for cost in curve.costs]
    lows = [rule.accuracy.low for rule in comparison.rules]
    highs = [rule.accuracy.high for rule in comparison.rules]
    room = max(0.02, (max(highs) - min(lows)) * 0.1)
    x = svg.Scale(0.0, max(costs) * 1.15 or 1.0, _LEFT, WIDTH - _RIGHT)
    y = svg.Scale(max(0.0, min(lows) - room), min(1.0, max(highs) + room), HEIGHT - _BOTTOM, _TOP)
    parts = cost_axes(x, y, HEIGHT)
    ends = [
        (x(rules[name].cost.estimate * 1000), y(rules[name].accuracy.estimate))
        for name in (SMALL, BIG)
    ]
    parts.append(svg.path(ends, "mixing"))
    for curve in comparison.curves:
        points = [
            (x(cost * 1000), y(right))
            for cost, right in zip(curve.costs, curve.accuracies, strict=True)
        ]
        parts.append(svg.path(points, "mixing"))
        at_x, at_y = points[len(points) // 2]
        parts.append(svg.text(at_x + 4, at_y + 12, curve.name, "tick", "start"))
    parts += [_spot(x, y, rule) for rule in comparison.rules]
    return svg.picture(WIDTH, HEIGHT, "Accuracy against dollars", *parts)


def _spot(x: svg.Scale, y: svg.Scale, rule: RuleFigures) -> str:
    colour = _COLOURS[rule.name]
    at_x, at_y = x(rule.cost.estimate * 1000), y(rule.accuracy.estimate)
    flipped = at_x + 10 + svg.width_of(rule.name) > WIDTH
    words = (
        f"{rule.name}: {share(rule.accuracy.estimate)} "
        f"[{span(rule.accuracy.low, rule.accuracy.high)}], {dollars(rule.cost.estimate * 1000)}"
    )
    return "".join(
        (
            svg.hint(words),
            svg.line(x(rule.cost.low * 1000), at_y, x(rule.cost.high * 1000), at_y,
                     f"interval {colour}"),
            svg.line(at_x, y(rule.accuracy.high), at_x, y(rule.accuracy.low), f"interval {colour}"),
            svg.tag("circle", cx=at_x, cy=at_y, r=5.5, class_=f"dot {colour}"),
            svg.text(at_x + (-10 if flipped else 10), at_y - 9, rule.name, "name",
                     "end" if flipped else "start"),
        )
    )  # fmt: skip


def cost_axes(x: svg.Scale, y: svg.Scale, height: float) -> list[str]:
    """Draw the grid of a plot of accuracy over US dollars per 1,000 questions, `height` pixels
    high."""
    parts: list[str] = []
    for tick in y.ticks(5):
        parts.append(svg.line(x.start, y(tick), x.end, y(tick), "grid"))
        parts.append(svg.text(x.start - 6, y(tick) + 4, share(tick, 0), "tick", "end"))
    for tick in x.ticks(5):
        parts.append(svg.line(x(tick), y.start, x(tick), y.end, "grid"))
        parts.append(svg.text(x(tick), height - 26, dollars(tick), "tick", "middle"))
    label = "US dollars per 1,000 questions"
    parts.append(svg.text((x.start + x.end) / 2, height - 6, label, "axis", "middle"))
    return parts
