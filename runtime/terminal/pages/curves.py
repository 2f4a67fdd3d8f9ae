"""Lines over steps or any other number: learning curves, throughput over load.

A line with more points than a reader can distinguish is drawn as the means of equal intervals, with
a band from each interval's minimum to its maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopline.runtime.terminal.pages import svg
from loopline.runtime.terminal.pages.labels import spaced_ticks, tick_middle

WIDTH = 400.0
"""Slightly more than the width of a phone, so that a drawing keeps its size there."""
HEIGHT = 230.0
MAX_POINTS = 120
"""Maximum points of one line: a few pixels of the drawing per point."""
MAX_DOTS = 40
MAX_COORDINATE = 1e100
"""Largest value that is drawn: beyond it a scale could overflow, and no meaningful loss is that
large."""
COLOURS = 6
_LEFT, _RIGHT, _BOTTOM, _ROW = 58.0, 24.0, 44.0, 17.0


@dataclass(frozen=True)
class Point:
    """One value; `low` and `high` are the limits of its interval."""

    x: float
    y: float
    low: float
    high: float

    @classmethod
    def at(cls, x: float, y: float) -> Point:
        return cls(x, y, y, y)


@dataclass(frozen=True)
class Curve:
    """A named line. Points that are not finite, or beyond `MAX_COORDINATE`, are left out."""

    name: str
    points: Sequence[Point]


def number(value: float) -> str:
    """Format a number with three significant digits: 0.0123, 1,230, 12.5 M, 1.2e-07. The rounded
    value determines the format: 999.6 is 1,000."""
    if value == 0:
        return "0"
    size = abs(float(f"{value:.3g}"))
    if size >= 1e9:
        text = f"{value:.2g}"
    elif abs(float(f"{value:.0f}")) >= 1e7:
        text = f"{value / 1e6:.3g} M"
    elif size >= 1000:
        text = f"{value:,.0f}"
    elif abs(float(f"{value:.1e}")) < 1e-3:
        text = f"{value:.1e}"
    else:
        text = f"{value:.3g}"
    return text.replace("-", "−")


def curves_plot(
    label: str,
    curves: Sequence[Curve],
    *,
    x_label: str = "step",
    say: Callable[[float], str] = number,
    say_x: Callable[[float], str] = number,
    least: float | None = None,
    most: float | None = None,
    log_x: bool = False,
    x_ticks: Sequence[float] = (),
) -> str:
    """Plot the lines in one drawing, with their names above if there are several. The vertical axis
    always includes `least` and `most`. Empty without a finite point."""
    drawn = [
        Curve(curve.name, finite_points)
        for curve in curves
        if (finite_points := _thin_points([point for point in curve.points if _is_finite(point)]))
    ]
    if not drawn:
        return ""
    points = [point for curve in drawn for point in curve.points]
    names = _legend_rows([curve.name for curve in drawn]) if len(drawn) > 1 else []
    top = 10.0 + _ROW * len(names)
    height = HEIGHT + _ROW * len(names)
    xs = [point.x for point in points]
    y = svg.Scale(*_axis_range(points, least, most), height - _BOTTOM, top)
    left = svg.margin_for(map(say, y.ticks(4)), _LEFT, WIDTH / 3)
    x = svg.Scale(min(xs), max(xs), left, WIDTH - _RIGHT, log_x)
    parts = _legend(names)
    for tick in y.ticks(4):
        kind = "zero" if abs(tick) < 1e-12 else "grid"
        parts.append(svg.line(x.start, y(tick), x.end, y(tick), kind))
        parts.append(svg.text(x.start - 6, y(tick) + 4, say(tick), "tick", "end"))
    ticks = x_ticks or _whole_ticks(x.ticks(5))
    for tick, words in spaced_ticks(x, ticks, [say_x(tick) for tick in ticks], WIDTH):
        parts.append(svg.line(x(tick), y.start, x(tick), y.start + 4, "grid"))
        middle = tick_middle(x, tick, words, WIDTH)
        parts.append(svg.text(middle, height - _BOTTOM + 19, words, "tick", "middle"))
    parts.append(svg.text((x.start + x.end) / 2, height - 6, x_label, "axis", "middle"))
    for at, curve in enumerate(drawn):
        parts += _line(curve, x, y, at, say, lambda value: f"{x_label} {say_x(value)}")
    return svg.picture(WIDTH, height, label, *parts)


def _line(
    curve: Curve,
    x: svg.Scale,
    y: svg.Scale,
    at: int,
    say: Callable[[float], str],
    place: Callable[[float], str],
) -> list[str]:
    look = f"arm-{at % COLOURS}{'' if at < COLOURS else ' again'}"
    parts: list[str] = []
    points = curve.points
    if any(point.low != point.high for point in points) and len(points) > 1:
        edge = [(x(point.x), y(point.high)) for point in points]
        edge += [(x(point.x), y(point.low)) for point in reversed(points)]
        parts.append(svg.path(edge, f"spread {look}"))
    if len(points) > 1:
        parts.append(svg.path([(x(point.x), y(point.y)) for point in points], f"curve {look}"))
    small = len(points) > MAX_DOTS
    for point in points:
        words = f"{curve.name}: {say(point.y)} at {place(point.x)}"
        parts.append(
            svg.tag(
                "circle",
                svg.hint(words),
                cx=x(point.x),
                cy=y(point.y),
                r=5.0 if small else 3.2,
                class_="touch" if small else f"dot {look}",
            )
        )
    return parts


def _thin_points(points: Sequence[Point]) -> list[Point]:
    """Reduce the points to at most `MAX_POINTS`: each is the mean of an interval, with its
    extremes."""
    size = -(-len(points) // MAX_POINTS)
    if size <= 1:
        return list(points)
    stretches = [points[at : at + size] for at in range(0, len(points), size)]
    return [
        Point(
            x=math.fsum(point.x for point in stretch) / len(stretch),
            y=math.fsum(point.y for point in stretch) / len(stretch),
            low=min(point.low for point in stretch),
            high=max(point.high for point in stretch),
        )
        for stretch in stretches
    ]


def _is_finite(point: Point) -> bool:
    return all(abs(value) <= MAX_COORDINATE for value in (point.x, point.y, point.low, point.high))


def _axis_range(
    points: Sequence[Point], least: float | None, most: float | None
) -> tuple[float, float]:
    """Return the limits of the vertical axis, with a margin where no limit is given."""
    low, high = min(point.low for point in points), max(point.high for point in points)
    low = low if least is None else min(low, least)
    high = high if most is None else max(high, most)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return (
        low if least is not None and low == least else low - room,
        high if most is not None and high == most else high + room,
    )


def _whole_ticks(ticks: Sequence[float]) -> list[float]:
    """Choose ticks for steps, which are integers: only whole ticks if there are any."""
    whole = [tick for tick in ticks if abs(tick - round(tick)) < 1e-9]
    return whole or list(ticks)


def _legend_rows(names: Sequence[str]) -> list[list[tuple[int, str, float]]]:
    """Return the legend's names with number and place, split into rows of the drawing's width."""
    rows: list[list[tuple[int, str, float]]] = [[]]
    place = _LEFT
    for at, name in enumerate(names):
        label = name if len(name) <= 40 else f"{name[:39]}…"
        wide = 28 + 7.2 * len(label)
        if rows[-1] and place + wide > WIDTH:
            rows.append([])
            place = _LEFT
        rows[-1].append((at, label, place))
        place += wide
    return rows


def _legend(rows: Sequence[Sequence[tuple[int, str, float]]]) -> list[str]:
    parts: list[str] = []
    for row, names in enumerate(rows):
        y = 8.0 + _ROW * row
        for at, name, place in names:
            look = f"arm-{at % COLOURS}{'' if at < COLOURS else ' again'}"
            parts.append(svg.line(place, y, place + 14, y, f"curve {look}"))
            parts.append(svg.text(place + 18, y + 4, name, "label"))
    return parts
