"""A few SVG elements. Colours are classes, so that the page's theme defines them; every text is
escaped here and only here."""

from __future__ import annotations

import math
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


def tag(name: str, *children: str, **attributes: float | str | None) -> str:
    """Return an element. In attribute names, `_` becomes `-`; a trailing `_` is dropped
    (`class_`)."""
    parts = [name]
    for key, value in attributes.items():
        if value is None:
            continue
        value_text = (
            f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        )
        parts.append(f'{key.rstrip("_").replace("_", "-")}="{escape(value_text)}"')
    inner = "".join(children)
    return f"<{' '.join(parts)}>{inner}</{name}>" if inner else f"<{' '.join(parts)}/>"


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    return tag("text", escape(words), x=x, y=y, class_=class_ or None, text_anchor=anchor)


def width_of(words: str, size: float = 13.0) -> float:
    """Estimate a text's width in a bold font of `size` pixels. The estimate is high, since the
    reader's fonts are unknown."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in words)
    return size * (0.6 * (len(words) - wide) + wide)


def margin_for(names: Iterable[str], least: float, most: float) -> float:
    """Return the pixels left of a drawing for names that end 8 pixels before it."""
    widest = max((width_of(name) for name in names), default=0.0)
    return min(most, max(least, widest + 12))


def name(x: float, y: float, words: str, class_: str) -> str:
    """Return a name in the margin that ends 8 pixels before `x`. A name that is too long is
    truncated; its tooltip shows the whole name."""
    label = words
    while len(label) > 1 and width_of(f"{label}…") > x - 8:
        label = label[:-1]
    if width_of(words) <= x - 8:
        return text(x - 8, y, words, class_, "end")
    return tag("g", hint(words), text(x - 8, y, f"{label}…", class_, "end"))


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rect(x: float, y: float, width: float, height: float, class_: str, *inner: str) -> str:
    return tag(
        "rect",
        *inner,
        x=x,
        y=y,
        width=max(0.0, width),
        height=max(0.0, height),
        class_=class_,
    )


def hint(words: str) -> str:
    """Return the tooltip of an element."""
    return tag("title", escape(words))


def link(href: str, *children: str) -> str:
    return tag("a", *children, href=href)


def path(points: Sequence[tuple[float, float]], class_: str) -> str:
    """Return a polyline."""
    steps = " L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return tag("path", d=f"M{steps}", class_=class_)


def picture(width: float, height: float, label: str, *children: str) -> str:
    """Return the whole drawing, which scales with its container."""
    return tag(
        "svg",
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        # Screen readers can't reach parts of an image, so a drawing with links is a group.
        role="group" if any("<a " in child for child in children) else "img",
        aria_label=label,
        class_="plot",
    )


@dataclass(frozen=True)
class Scale:
    """Linear or logarithmic scale that maps values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
        if high == low:
            return (self.start + self.end) / 2
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return self.start + share * (self.end - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Return round values inside the scale."""
        if self.log:
            return self._decades(wanted)
        raw = (self.high - self.low) / wanted
        if raw < sys.float_info.min:  # smaller numbers have no exact multiples
            return [self.low]
        power = 10 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [at * step for at in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _decades(self, wanted: int) -> list[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for multiples in ((1, 2, 5), (1, 3), (1,)):
            ticks = [
                multiple * 10.0**decade
                for decade in decades
                for multiple in multiples
                if self.low <= multiple * 10.0**decade <= self.high
            ]
            if len(ticks) <= wanted + 2:
                return ticks
        return ticks
