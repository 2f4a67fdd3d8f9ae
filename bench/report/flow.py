"""The failure flow: from all questions of an arm, along their paths, to their outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from loopline.bench.report import links
from loopline.bench.report.facts import ArmRuns
from loopline.bench.results import Result
from loopline.bench.taxonomy import CALLED, DELEGATED, ESCALATED, Class
from loopline.runtime.terminal.pages import svg

WIDTH = 520.0
NODE = 12.0
GAP = 15.0
"""Pixels between nodes: room for the label of a thin node."""

_ROUTES = ("answered alone", "called tools", "delegated", "escalated")


def failure_flow(arm: ArmRuns, classes_in_order: Sequence[str]) -> str:
    """Draw one arm's flow; each end links to its questions."""
    if not arm.results:
        return ""
    total = len(arm.results)
    pairs = [(_route(result), arm.classes[result.item]) for result in arm.results]
    routes = [name for name in _ROUTES if any(route == name for route, _ in pairs)]
    classes = [name for name in classes_in_order if any(end == name for _, end in pairs)]
    columns = max(len(routes), len(classes))
    height = max(150.0, 28.0 + columns * 26.0) + 24
    scale = (height - 34 - GAP * (columns - 1)) / total
    through = Counter(pairs)
    left = _stack([sum(r == name for r, _ in pairs) for name in routes], scale, height)
    right = _stack([sum(c == name for _, c in pairs) for name in classes], scale, height)
    x1, x2 = 132.0, WIDTH - 206.0
    parts: list[str] = []
    leaving = dict(zip(routes, (top for top, _ in left), strict=True))
    arriving = dict(zip(classes, (top for top, _ in right), strict=True))
    for route in routes:
        for name in classes:
            amount = through[(route, name)]
            if not amount:
                continue
            thick = amount * scale
            start, end = leaving[route], arriving[name]
            leaving[route] += thick
            arriving[name] += thick
            parts.append(_band(x1 + NODE, start, x2, end, thick, _colour(name)))
    for route, (top, size) in zip(routes, left, strict=True):
        amount = sum(r == route for r, _ in pairs)
        parts.append(svg.rect(x1, top, NODE, max(1.5, size), "node"))
        parts.append(svg.text(x1 - 6, top + size / 2 + 4, f"{route} {amount}", "label", "end"))
    for name, (top, size) in zip(classes, right, strict=True):
        amount = sum(c == name for _, c in pairs)
        words = f"{name.replace('_', ' ')} {amount} ({amount / total:.1%})"
        parts.append(
            svg.link(
                links.place("items", arm=arm.name, class_=name),
                svg.rect(x2, top, NODE, max(1.5, size), f"node {_colour(name)}"),
                svg.text(x2 + NODE + 6, top + size / 2 + 4, words, "label"),
            )
        )
    return svg.picture(WIDTH, height, f"Failure flow of {arm.name}", *parts)


def _route(result: Result) -> str:
    if ESCALATED in result.signals:
        return "escalated"
    if CALLED in result.signals:
        return "called tools"
    return "delegated" if DELEGATED in result.signals else "answered alone"


def _colour(name: str) -> str:
    if name == Class.RIGHT:
        return "good"
    if name in {Class.ERROR, Class.CANCELLED, Class.DEADLINE, Class.BUDGET, Class.GAVE_UP,
                Class.CYCLE, Class.CALL_LIMIT}:  # fmt: skip
        return "broken"
    if name in {Class.FORMAT, Class.CHECKERS, Class.NO_ANSWER}:
        return "odd"
    return "bad"


def _stack(amounts: list[int], scale: float, height: float) -> list[tuple[float, float]]:
    """Return (top, size) of stacked nodes, centred as a whole."""
    sizes = [amount * scale for amount in amounts]
    used = sum(sizes) + GAP * (len(sizes) - 1)
    top = max(8.0, (height - used) / 2)
    places: list[tuple[float, float]] = []
    for size in sizes:
        places.append((top, size))
        top += size + GAP
    return places


def _band(x1: float, y1: float, x2: float, y2: float, thick: float, colour: str) -> str:
    middle = (x1 + x2) / 2
    thick = max(0.8, thick)
    outline = (
        f"M{x1:.1f},{y1:.1f} C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f} "
        f"L{x2:.1f},{y2 + thick:.1f} C{middle:.1f},{y2 + thick:.1f} "
        f"{middle:.1f},{y1 + thick:.1f} {x1:.1f},{y1 + thick:.1f} Z"
    )
    return svg.tag("path", d=outline, class_=f"band {colour}")
