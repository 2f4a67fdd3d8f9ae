"""The plots of accuracy: against cost, and as paired differences."""

from __future__ import annotations

from typing import Any

from loopline.bench.report import links
from loopline.bench.report.facts import Facts
from loopline.bench.report.figures import count, dollars, p_value, points, share, span
from loopline.bench.report.intervals import WIDTH, Line, differences_plot
from loopline.bench.statistics import Interval
from loopline.runtime.terminal.pages import svg
from loopline.runtime.terminal.pages.labels import Box, Labels, spaced_ticks
from loopline.runtime.terminal.pluralize import format_count

_DOT = 5.5
"""Radius of an arm's dot."""


def arm_class(facts: Facts, arm: str) -> str:
    """Return the colour class of an arm: known arms have the same colour in every report."""
    colour_of = facts.benchmark.arms.colour_of
    colour = colour_of(arm)
    if colour is not None:
        return f"arm-{colour}"
    others = [name for name in facts.manifest.arms if colour_of(name) is None]
    return f"arm-{3 + others.index(arm) % 3}"


def has_dollars(arms: dict[str, Any]) -> bool:
    """Whether arms can be compared by dollars: something was paid, and every amount is known."""
    return any(arm["usage"]["micro_dollars"] for arm in arms.values()) and not any(
        arm["unpriced"] for arm in arms.values()
    )


def accuracy_against_cost(facts: Facts) -> tuple[str, str]:
    """Return the plot and its caption. The cost is in dollars per 1,000 questions, or in tokens per
    question if a price is missing."""
    arms = facts.results["arms"]
    priced = has_dollars(arms)
    unit = "micro_dollars" if priced else "tokens"
    per = 1e-3 if priced else 1.0  # micro-dollars per question → dollars per 1,000
    spots = {
        name: (facts_of_arm["per_question"][unit], facts_of_arm["accuracy"][facts.primary])
        for name, facts_of_arm in arms.items()
        if facts_of_arm["n"]
    }
    if not spots:
        return "", "Nothing was answered yet."
    oracle = facts.results["oracle"]
    oracle_spot = None
    if oracle is not None:
        oracle_spot = (oracle[f"{unit}_per_question"] * per, oracle["accuracy"])
    bounds = [cost[edge] * per for cost, _ in spots.values() for edge in ("low", "high")]
    costs = [*bounds, *([oracle_spot[0]] if oracle_spot else [])]
    positive = [cost for cost in costs if cost > 0]
    log = bool(positive) and min(costs) > 0 and max(costs) / min(positive) > 8
    low_x, high_x = (min(costs) / 1.6, max(costs) * 1.6) if log else (0.0, max(costs) * 1.15 or 1.0)
    tops = [accuracy["high"] for _, accuracy in spots.values()]
    tops += [oracle_spot[1]] if oracle_spot else []
    bottoms = [accuracy["low"] for _, accuracy in spots.values()]
    room = max(0.02, (max(tops) - min(bottoms)) * 0.12)
    low_y, high_y = max(0.0, min(bottoms) - room), min(1.0, max(tops) + room)
    height = 330.0
    x = svg.Scale(low_x, high_x, 52.0, WIDTH - 14, log)
    y = svg.Scale(low_y, high_y, height - 44, 14.0)
    parts = _axes(x, y, height, dollars if priced else count)
    label = "US dollars per 1,000 questions" if priced else "tokens per question"
    label += ", logarithmic" if log else ""
    parts.append(svg.text((52 + WIDTH - 14) / 2, height - 6, label, "axis", "middle"))
    if oracle_spot and {"llm", "slm"} <= spots.keys():
        parts += _bounds(x, y, spots, oracle_spot, per)
    places = {
        name: (x(cost["estimate"] * per), y(accuracy["estimate"]))
        for name, (cost, accuracy) in spots.items()
    }
    marks = [Box.around(*place, _DOT) for place in places.values()]
    labels = Labels(Box(x.start, 0.0, WIDTH, y.start), marks)
    for name, (cost, accuracy) in spots.items():
        # The name is placed where it covers no other name and no other arm's dot.
        label = labels.place(*places[name], name, "name", 13.0, _DOT)
        parts.append(_spot(x, y, name, cost, accuracy, per, arm_class(facts, name), priced, label))
    if oracle_spot and {"llm", "slm"} <= spots.keys():
        words = f"oracle {share(oracle_spot[1])}"
        parts.append(labels.place(x.end, y(oracle_spot[1]), words, "label", 12.0))
    caption = (
        "Each arm with its 95 % intervals in both directions (Wilson for accuracy, bootstrap over "
        "questions for cost)."
    )
    if oracle_spot:
        caption += (
            " Dashed: the oracle router, which sends a question to the big model exactly when "
            "only that solves it; no router of whole questions can exceed it. Dotted: mixing the "
            "two models at random; a router on this line has learned nothing."
        )
    if labels.left_out:
        caption += (
            f" {format_count(labels.left_out, 'name')} did not fit: hover over a dot to see its "
            "name."
        )
    drawing = svg.picture(WIDTH, height, "Accuracy against cost", *parts)
    return drawing, caption


def differences(facts: Facts) -> str:
    """Plot the difference of accuracies of every pair with its bootstrap interval."""
    lines = [
        Line(
            _pair_words(pair),
            Interval(*(pair["difference"][edge] for edge in ("estimate", "low", "high"))),
            "sure" if pair["p"] < 0.05 else "unsure",
        )
        for pair in facts.results["pairs"]
        if pair["n"]
    ]
    if not lines:
        return ""
    axis = "difference in accuracy, percentage points"
    return differences_plot("Paired differences in accuracy", lines, points, axis)


def _pair_words(pair: dict[str, Any]) -> str:
    gap = pair["difference"]
    return (
        f"{pair['a']} − {pair['b']}: {points(gap['estimate'])} "
        f"[{points(gap['low'])}, {points(gap['high'])}], {p_value(pair['p'])}"
    )


def checker_intervals(facts: Facts, checkers: tuple[str, ...]) -> str:
    """Plot the accuracy of every arm by every checker, as intervals on one axis."""
    arms = {name: a for name, a in facts.results["arms"].items() if a["n"]}
    if not arms:
        return ""
    row, top = 16.0, 10.0
    left = svg.margin_for(checkers, 96.0, WIDTH / 2)
    block = row * len(arms) + 12
    height = top + block * len(checkers) + 30
    x = svg.Scale(0.0, 1.0, left, WIDTH - 24)
    parts: list[str] = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(svg.line(x(tick), top, x(tick), height - 26, "grid"))
        parts.append(svg.text(x(tick), height - 10, share(tick, 0), "tick", "middle"))
    for at, checker in enumerate(checkers):
        begin = top + block * at + 8
        parts.append(svg.name(left, begin + row * len(arms) / 2 + 4, checker, "label"))
        for place, (name, arm) in enumerate(arms.items()):
            y = begin + row * place + row / 2
            score = arm["accuracy"][checker]
            colour = arm_class(facts, name)
            words = f"{name}, {checker}: {share(score['estimate'])} ({score['right']}/{arm['n']})"
            parts.append(
                svg.link(
                    links.place("items", arm=name, checker=checker, says="right"),
                    svg.hint(words),
                    svg.line(x(score["low"]), y, x(score["high"]), y, f"interval {colour}"),
                    svg.tag("circle", cx=x(score["estimate"]), cy=y, r=4.5, class_=f"dot {colour}"),
                )
            )
    return svg.picture(WIDTH, height, "Accuracy by checker", *parts)


def _axes(x: svg.Scale, y: svg.Scale, height: float, costs: Any) -> list[str]:
    parts: list[str] = []
    for tick in y.ticks(5):
        parts.append(svg.line(x.start, y(tick), x.end, y(tick), "grid"))
        parts.append(svg.text(x.start - 6, y(tick) + 4, share(tick, 0), "tick", "end"))
    ticks = x.ticks(5)
    for tick, words in spaced_ticks(x, ticks, [costs(tick) for tick in ticks]):
        parts.append(svg.line(x(tick), y.start, x(tick), y.end, "grid"))
        parts.append(svg.text(x(tick), height - 26, words, "tick", "middle"))
    return parts


def _bounds(
    x: svg.Scale, y: svg.Scale, spots: dict[str, Any], oracle: tuple[float, float], per: float
) -> list[str]:
    """Return the oracle's line (rising from the small model, then level) and that of random
    mixing."""
    small = (spots["slm"][0]["estimate"] * per, spots["slm"][1]["estimate"])
    big = (spots["llm"][0]["estimate"] * per, spots["llm"][1]["estimate"])

    def between(start: tuple[float, float], end: tuple[float, float]) -> list[tuple[float, float]]:
        # On a logarithmic axis a straight mixture is a curve.
        steps = 24
        return [
            (
                x(start[0] + (end[0] - start[0]) * at / steps),
                y(start[1] + (end[1] - start[1]) * at / steps),
            )
            for at in range(steps + 1)
        ]

    bound = [*between(small, oracle), (x.end, y(oracle[1]))]
    return [
        svg.path(between(small, big), "mixing"),
        svg.path(bound, "oracle"),
        svg.tag("circle", cx=x(oracle[0]), cy=y(oracle[1]), r=4, class_="oracle-dot"),
    ]


def _spot(
    x: svg.Scale,
    y: svg.Scale,
    name: str,
    cost: dict[str, float],
    accuracy: dict[str, float],
    per: float,
    colour: str,
    priced: bool,
    label: str,
) -> str:
    left, right = x(cost["low"] * per), x(cost["high"] * per)
    top, bottom = y(accuracy["high"]), y(accuracy["low"])
    at_x, at_y = x(cost["estimate"] * per), y(accuracy["estimate"])
    money = dollars(cost["estimate"] * per) if priced else f"{count(cost['estimate'])} tokens"
    reach = span(accuracy["low"], accuracy["high"])
    words = f"{name}: {share(accuracy['estimate'])} [{reach}], {money}"
    return svg.link(
        links.place("items", arm=name),
        svg.hint(words),
        svg.tag(
            "ellipse",
            cx=(left + right) / 2,
            cy=(top + bottom) / 2,
            rx=max(4.0, (right - left) / 2),
            ry=max(4.0, (bottom - top) / 2),
            class_=f"region {colour}",
        ),
        svg.line(left, at_y, right, at_y, f"interval {colour}"),
        svg.line(at_x, top, at_x, bottom, f"interval {colour}"),
        svg.tag("circle", cx=at_x, cy=at_y, r=_DOT, class_=f"dot {colour}"),
        label,
    )
