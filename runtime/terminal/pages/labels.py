"""Places names next to the marks of a drawing without overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loopline.runtime.terminal.pages import svg

_DISTANCES = (0.0, 14.0, 28.0, 44.0, 62.0, 84.0, 110.0, 140.0, 180.0, 230.0, 290.0)
"""Pixels by which a name may be moved up or down from its best place."""
LINE = 15.0
"""Pixels between the baselines of two lines of text."""
TICK_SIZE = 12.0
"""Font size of axis labels."""
_GAP = 10.0
"""Pixels between a mark and its name."""
_LEADER = 20.0
"""Distance from a mark, in pixels, beyond which a line connects the name with it."""


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def is_within(self, other: Box) -> bool:
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )

    @classmethod
    def around(cls, x: float, y: float, radius: float) -> Box:
        return cls(x - radius, y - radius, x + radius, y + radius)

    @classmethod
    def of_text(cls, x: float, y: float, words: str, anchor: str, size: float) -> Box:
        """Return the box of a text line with its baseline at `y`; `anchor`: start, middle or
        end."""
        width = svg.width_of(words, size)
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        return cls(left, y - 0.85 * size, left + width, y + 0.25 * size)


class Labels:
    """Places names in a drawing one after the other."""

    def __init__(self, room: Box, marks: Iterable[Box] = ()) -> None:
        """Create a layout; `marks` are boxes that no name may cover."""
        self._room = room
        self._taken = list(marks)
        self.left_out = 0
        """Number of names without space."""

    def place(
        self, x: float, y: float, words: str, class_: str, size: float, radius: float = 0.0
    ) -> str:
        """Return the name of the mark at (x, y), placed as close to it as possible. Empty without
        space: overlapping names would be unreadable."""
        options = _options(x, y, words, size, radius)
        free = [
            option
            for option in options
            if option[2].is_within(self._room)
            and not any(option[2].overlaps(box) for box in self._taken)
        ]
        if not free:
            self.left_out += 1
            return ""
        best = min(free, key=lambda option: _distance(option[2], x, y))
        at_x, at_y, box, anchor = best
        self._taken.append(box)
        text = svg.text(at_x, at_y, words, class_, anchor)
        if _distance(box, x, y) <= _LEADER:
            return text
        end_x = min(max(x, box.left), box.right)
        end_y = box.bottom if y > box.bottom else box.top
        return svg.line(x, y, end_x, end_y, "leader") + text


def _options(
    x: float, y: float, words: str, size: float, radius: float
) -> list[tuple[float, float, Box, str]]:
    """Return the possible places of a name, each with point, box and anchor."""
    gap = _GAP if radius else 0.0
    points: list[tuple[float, float, str]] = []
    for distance in _DISTANCES:
        for baseline in (y - 9 - distance, y + size + distance):
            points += [(x + gap, baseline, "start"), (x - gap, baseline, "end")]
            points.append((x, baseline - radius if baseline < y else baseline + radius, "middle"))
            # Shifted away from an edge that the name would cross.
            width = svg.width_of(words, size)
            points += [(x - part * width, baseline, "start") for part in (0.25, 0.75)]
    return [
        (at_x, at_y, Box.of_text(at_x, at_y, words, anchor, size), anchor)
        for at_x, at_y, anchor in points
    ]


def _distance(box: Box, x: float, y: float) -> float:
    """Return the distance from a point to a box."""
    across = max(box.left - x, 0.0, x - box.right)
    down = max(box.top - y, 0.0, y - box.bottom)
    return (across * across + down * down) ** 0.5


def spaced_ticks(
    scale: svg.Scale, ticks: Sequence[float], words: Sequence[str], edge: float = float("inf")
) -> list[tuple[float, str]]:
    """Return the ticks of a horizontal axis whose labels do not touch the previous labels. `edge`:
    the end of the drawing, before which the caller keeps the last labels (`tick_middle`)."""
    placed: list[tuple[float, str]] = []
    end = float("-inf")
    for tick, text in zip(ticks, words, strict=True):
        middle, half = tick_middle(scale, tick, text, edge), svg.width_of(text, TICK_SIZE) / 2
        if middle - half >= end:
            placed.append((tick, text))
            end = middle + half + 4
    return placed


def tick_middle(scale: svg.Scale, tick: float, words: str, edge: float) -> float:
    """Return the middle of a tick's label, which ends before `edge`."""
    return min(scale(tick), edge - svg.width_of(words, TICK_SIZE) / 2)


def broken_words(words: str, room: float, size: float = 12.0) -> list[str]:
    """Break words such as `a − b: +1.2` after the name if they are wider than `room` pixels. A line
    that is still too wide is truncated."""
    name, colon, rest = words.rpartition(": ")
    is_one = svg.width_of(words, size) <= room or not name
    lines = [words] if is_one else [f"{name}{colon.strip()}", rest]
    return [_cut(line, room, size) for line in lines]


def _cut(words: str, room: float, size: float) -> str:
    if svg.width_of(words, size) <= room:
        return words
    while len(words) > 1 and svg.width_of(f"{words}…", size) > room:
        words = words[:-1]
    return f"{words}…"
