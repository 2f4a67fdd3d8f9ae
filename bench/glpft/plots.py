"""Two plots for each size: what the methods solve, and what GLPFT solves more than the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.glpft.figures import ALL, SizeFigures
from bench.report.figures import points, share, span
from bench.report.plots import WIDTH
from bench.statistics import Interval
from runtime.pages import svg

_ROW = 46.0
_TOP = 8.0
_BELOW = 34.0


@dataclass(frozen=True)
class _Line:
    """An interval with its words above it."""

    words: str
    interval: Interval
    mark: str
    """Class that says its colour."""
    dots: tuple[float, ...] = ()


def solved_plot(size: SizeFigures) -> str:
    """Each method's share, with its seeds."""
    lines = [
        _Line(
            words=f"{each.method}: {share(found.mean.estimate)} "
            f"({span(found.mean.low, found.mean.high)})",
            interval=found.mean,
            mark=f"arm-{at % 6}",
            dots=found.seeds,
        )
        for at, each in enumerate(size.methods)
        for found in (each.solved[ALL],)
    ]
    edges = [edge for line in lines for edge in (line.interval.low, line.interval.high, *line.dots)]
    room = max(0.01, (max(edges) - min(edges)) * 0.08)
    x = svg.Scale(max(0.0, min(edges) - room), min(1.0, max(edges) + room), 20.0, WIDTH - 20)
    return _drawing("Solved", lines, x, share)


def differences_plot(size: SizeFigures) -> str:
    """GLPFT less each other method, paired."""
    lines: list[_Line] = []
    for each in size.differences:
        gap = each.solved[ALL]
        words = (
            f"{each.first} − {each.second}: {points(gap.estimate)} "
            f"[{points(gap.low)}, {points(gap.high)}]"
        )
        lines.append(_Line(words, gap, "unsure" if gap.low <= 0 <= gap.high else "sure"))
    edges = [abs(edge) for line in lines for edge in (line.interval.low, line.interval.high)]
    reach = 1.1 * max(0.01, *edges)
    return _drawing("Paired differences", lines, svg.Scale(-reach, reach, 20.0, WIDTH - 20), points)


def _drawing(label: str, lines: Sequence[_Line], x: svg.Scale, say: Callable[[float], str]) -> str:
    bottom = _TOP + _ROW * len(lines)
    parts: list[str] = []
    for tick in x.ticks(5):
        kind = "zero" if tick == 0 else "grid"
        parts.append(svg.line(x(tick), _TOP, x(tick), bottom, kind))
        parts.append(svg.text(x(tick), bottom + 16, say(tick), "tick", "middle"))
    for at, line in enumerate(lines):
        y = _TOP + _ROW * at + 30
        found = line.interval
        parts.append(svg.text(x.start, y - 12, line.words, "label"))
        parts.append(svg.line(x(found.low), y, x(found.high), y, f"interval {line.mark}"))
        parts += [
            svg.tag("circle", cx=x(dot), cy=y, r=2.5, class_=f"dot {line.mark}")
            for dot in line.dots
        ]
        parts.append(svg.tag("circle", cx=x(found.estimate), cy=y, r=5, class_=f"dot {line.mark}"))
    return svg.picture(WIDTH, bottom + _BELOW, label, *parts)
