"""Stacked intervals with words above them: shares, or differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopline.bench.statistics import Interval
from loopline.runtime.terminal.pages import svg
from loopline.runtime.terminal.pages.labels import LINE, broken_words, spaced_ticks

WIDTH = 420.0
"""Width of every drawing in a report, in pixels: little more than a phone's screen, where drawings
keep their size."""
_ROW = 46.0
_TOP = 8.0
_BELOW = 34.0
_AXIS = 16.0
"""Additional pixels if the axis has a name."""
_SIDE = 20.0


@dataclass(frozen=True)
class Line:
    """An interval with its words above it."""

    words: str
    interval: Interval
    mark: str
    """CSS class of its colour."""
    dots: tuple[float, ...] = ()
    """Smaller intervals next to the estimate."""


def shares_plot(label: str, lines: Sequence[Line], say: Callable[[float], str]) -> str:
    """Plot values from 0 to 1; the axis covers all of them."""
    edges = [edge for line in lines for edge in (*_ends(line), *line.dots)]
    room = max(0.01, (max(edges) - min(edges)) * 0.08)
    low, high = max(0.0, min(edges) - room), min(1.0, max(edges) + room)
    return _plot(label, lines, svg.Scale(low, high, _SIDE, WIDTH - _SIDE), say)


def differences_plot(
    label: str, lines: Sequence[Line], say: Callable[[float], str], axis: str = ""
) -> str:
    """Plot differences, with zero in the middle. `axis`: what the axis shows."""
    reach = 1.1 * max(0.01, *(abs(edge) for line in lines for edge in _ends(line)))
    return _plot(label, lines, svg.Scale(-reach, reach, _SIDE, WIDTH - _SIDE), say, axis)


def certainty_class(interval: Interval) -> str:
    """Return the colour class of a difference: grey where the interval contains zero."""
    return "unsure" if interval.low <= 0 <= interval.high else "sure"


def _ends(line: Line) -> tuple[float, float]:
    return line.interval.low, line.interval.high


def _plot(
    label: str, lines: Sequence[Line], x: svg.Scale, say: Callable[[float], str], axis: str = ""
) -> str:
    parts: list[str] = []
    words = [broken_words(line.words, x.end - x.start) for line in lines]
    row = _ROW + LINE * (max(map(len, words), default=1) - 1)
    bottom = _TOP + row * len(lines)
    ticks = x.ticks(5)
    placed_ticks = spaced_ticks(x, ticks, [say(tick) for tick in ticks])
    for tick, text in placed_ticks:
        parts.append(svg.text(x(tick), bottom + 16, text, "tick", "middle"))
    for at, line in enumerate(lines):
        y = _TOP + row * (at + 1) - 16
        interval = line.interval
        # Grid lines are interrupted so that none crosses the words of an interval.
        for tick, _ in placed_ticks:
            kind = "zero" if tick == 0 else "grid"
            parts.append(svg.line(x(tick), y - 8, x(tick), y + 12, kind))
        for place, text in enumerate(reversed(words[at])):
            parts.append(svg.text(x.start, y - 12 - LINE * place, text, "label"))
        parts.append(svg.line(x(interval.low), y, x(interval.high), y, f"interval {line.mark}"))
        parts += [
            svg.tag("circle", cx=x(dot), cy=y, r=2.5, class_=f"dot {line.mark}")
            for dot in line.dots
        ]
        parts.append(
            svg.tag("circle", cx=x(interval.estimate), cy=y, r=5, class_=f"dot {line.mark}")
        )
    height = bottom + _BELOW
    if axis:
        height += _AXIS
        parts.append(svg.text(WIDTH / 2, height - 6, axis, "axis", "middle"))
    return svg.picture(WIDTH, height, label, *parts)
