"""The page at the end of a training: its curves, its settings, and where the time went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from loopline.runtime.terminal.pages import svg
from loopline.runtime.terminal.pages.curves import MAX_POINTS, Curve, Point, curves_plot, number
from loopline.runtime.terminal.pages.page import page
from loopline.runtime.terminal.pages.templates import render

_BAR_WIDTH, _BAR_HEIGHT, _BAR_TOP = 940.0, 26.0, 4.0
_NARROWEST_NAMED = 0.08
"""Smallest share of the bar that has room for its label."""


@dataclass(frozen=True)
class Plot:
    """One drawing of lines; omitted if there is nothing to draw."""

    heading: str
    caption: str
    curves: Sequence[Curve]
    say: Callable[[float], str] = number
    least: float | None = None
    most: float | None = None


def share(value: float) -> str:
    """0.125 → 12.5 %. Only 1 is 100 %: 0.9996 → 99.96 %, 0.99999 → > 99.99 %."""
    for digits in (3, 4):
        text = f"{value * 100:.{digits}g}"
        if text != "100" or value >= 1:
            return f"{text} %"
    return "> 99.99 %"


def step_curve(name: str, values: Sequence[tuple[int, float]]) -> Curve:
    """A line with one value per step."""
    return Curve(name, [Point.at(float(step), value) for step, value in values])


def training_page(
    title: str,
    about: str,
    plots: Sequence[Plot],
    tables: Mapping[str, tuple[list[str], list[list[str]]]],
    seconds: Mapping[str, float],
    settings: BaseModel,
) -> str:
    """The whole page; `tables` by their headings, `seconds` by activity."""
    drawings = (
        (curves_plot(p.heading, p.curves, say=p.say, least=p.least, most=p.most), p) for p in plots
    )
    body = render(
        "loopline.trainers.core",
        "report.html.j2",
        title=title,
        about=about,
        tables=tables,
        thinned=any(len(curve.points) > MAX_POINTS for p in plots for curve in p.curves),
        drawn=[(drawing, plot) for drawing, plot in drawings if drawing],
        split=(_split_bar(seconds), _split_words(seconds)) if sum(seconds.values()) > 0 else (),
        settings=[
            [name, value] for name, value in _flatten_settings("", settings.model_dump(mode="json"))
        ],
    )
    return page(title, body)


def _split_bar(seconds: Mapping[str, float]) -> str:
    """A bar with the parts of the whole."""
    total = sum(seconds.values())
    x = svg.Scale(0.0, total, 0.0, _BAR_WIDTH)
    parts: list[str] = []
    begin = 0.0
    for at, (name, value) in enumerate(seconds.items()):
        wide = x(begin + value) - x(begin)
        words = f"{name}: {value:,.1f} s, {share(value / total)}"
        look = f"bar arm-{at % 6}"
        parts.append(svg.rect(x(begin), _BAR_TOP, wide, _BAR_HEIGHT, look, svg.hint(words)))
        if value / total >= _NARROWEST_NAMED:
            parts.append(svg.text(x(begin) + 6, _BAR_TOP + _BAR_HEIGHT + 16, name, "label"))
        begin += value
    return svg.picture(_BAR_WIDTH, _BAR_TOP + _BAR_HEIGHT + 26, "Where the time went", *parts)


def _split_words(seconds: Mapping[str, float]) -> str:
    total = sum(seconds.values())
    listed = ", ".join(
        f"{name} {value:,.1f} s ({share(value / total)})" for name, value in seconds.items()
    )
    return f"{total:,.1f} seconds: {listed}. Work lost in a crash is not counted."


def _flatten_settings(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    """Settings by their dotted names."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _flatten_settings(f"{prefix}.{key}" if prefix else str(key), inner)  # pyright: ignore[reportUnknownArgumentType]
    else:
        yield prefix, "–" if value is None or value == {} else str(value)
