"""The page at the end of a training: its curves, its settings, and where the time went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pydantic import BaseModel

from loopline.runtime.terminal.pages import svg
from loopline.runtime.terminal.pages.curves import MOST_POINTS, Curve, Point, curves_plot, number
from loopline.runtime.terminal.pages.page import figure, page, table

_BAR_WIDTH, _BAR_HEIGHT, _BAR_TOP = 940.0, 26.0, 4.0
_NARROWEST_NAMED = 0.08
"""Share of the bar that has room for its words."""


@dataclass(frozen=True)
class Plot:
    """One drawing of lines; left out where there is nothing to draw."""

    heading: str
    caption: str
    curves: Sequence[Curve]
    say: Callable[[float], str] = number
    least: float | None = None
    most: float | None = None


def share(value: float) -> str:
    """0.125 → 12.5 %. Nothing but all is 100 %: 0.9996 → 99.96 %, 0.99999 → > 99.99 %."""
    for digits in (3, 4):
        shown = f"{value * 100:.{digits}g}"
        if shown != "100" or value >= 1:
            return f"{shown} %"
    return "> 99.99 %"


def over_steps(name: str, values: Sequence[tuple[int, float]]) -> Curve:
    """A line of one value a step."""
    return Curve(name, [Point.at(float(step), value) for step, value in values])


def training_page(
    title: str,
    about: str,
    plots: Sequence[Plot],
    tables: Mapping[str, tuple[list[str], list[list[str]]]],
    seconds: Mapping[str, float],
    settings: BaseModel,
) -> str:
    """The whole page; `tables` by their headings, `seconds` by what took them."""
    drawn = [
        figure(drawing, each.caption, each.heading)
        for each in plots
        if (
            drawing := curves_plot(
                each.heading, each.curves, say=each.say, least=each.least, most=each.most
            )
        )
    ]
    body = [f"<h1>{escape(title)}</h1>", f'<p class="soft">{escape(about)}</p>']
    for heading, (head, rows) in tables.items():
        if rows:
            body += [f"<h2>{escape(heading)}</h2>", table(head, rows)]
    body.append("<h2>Curves</h2>")
    if any(len(curve.points) > MOST_POINTS for each in plots for curve in each.curves):
        body.append(
            '<p class="soft small">Lines of many steps are the means of even stretches; their '
            "bands are the least and the greatest.</p>"
        )
    body.append(f'<div class="two">{"".join(drawn)}</div>' if drawn else "<p>No step was made.</p>")
    if sum(seconds.values()) > 0:
        body += ["<h2>Where the time went</h2>", figure(_split(seconds), _split_words(seconds))]
    rows = [[name, value] for name, value in _flat("", settings.model_dump(mode="json"))]
    body.append(
        f"<h2>Settings</h2><details><summary>all {len(rows)}</summary>"
        f"{table(['setting', 'value'], rows)}</details>"
    )
    return page(title, "\n".join(body))


def _split(seconds: Mapping[str, float]) -> str:
    """Parts of the whole, one behind the other."""
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
    return f"{total:,.1f} seconds: {listed}. What a crash broke off is not counted."


def _flat(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    """Settings by their dotted names."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)  # pyright: ignore[reportUnknownArgumentType]
    else:
        yield prefix, "–" if value is None or value == {} else str(value)
