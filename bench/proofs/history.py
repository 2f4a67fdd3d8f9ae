"""The history of recorded measurements, and which ones became worse.

Lines are compared only if they have the same machine and the same options.

**Worse.** A measurement is worse than in the previous line if its whole interval is on the worse
side of the previous interval. A measurement without an interval gets that of all its earlier
values, and is judged from the third line on. A bar that was met before and is now missed is always
worse, and so is a violation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from loopline.bench.proofs.baselines import Baseline, RecordedValue
from loopline.bench.proofs.outcome import number

Change = Literal["worse", "better", ""]
_FREE = ("seed", "evidence")
"""Options that may differ: another seed is another sample of the same measurement."""
SHOWN = 5
"""Most lines (the last ones) whose values a table shows."""


@dataclass(frozen=True)
class Course:
    """One measurement over comparable lines, oldest first."""

    name: str
    values: tuple[RecordedValue | None, ...]
    """Values by line; None if a line lacks the measurement."""
    change: Change


@dataclass(frozen=True)
class Series:
    """Lines of one machine and one choice of options, with their measurements."""

    lines: tuple[Baseline, ...]
    courses: tuple[Course, ...]

    @property
    def worse(self) -> list[str]:
        """Names of measurements that became worse in the last line, and rules that it broke."""
        return [course.name for course in self.courses if course.change == "worse"] + [
            f"{rule}: {times} violations" for rule, times in self.lines[-1].violations.items()
        ]


def series_of(lines: Sequence[Baseline]) -> list[Series]:
    """Group the lines by machine and options, ordered by their first lines."""
    groups: dict[str, list[Baseline]] = {}
    for line in lines:
        options = {name: value for name, value in line.options.items() if name not in _FREE}
        key = line.machine.model_dump_json() + json.dumps(options, sort_keys=True)
        groups.setdefault(key, []).append(line)
    return [Series(tuple(group), tuple(_courses(group))) for group in groups.values()]


def _courses(lines: Sequence[Baseline]) -> list[Course]:
    names = dict.fromkeys(name for line in reversed(lines) for name in line.measurements)
    courses: list[Course] = []
    for name in names:
        values = tuple(line.measurements.get(name) for line in lines)
        courses.append(Course(name, values, change_of(values)))
    return courses


def change_of(values: Sequence[RecordedValue | None]) -> Change:
    """Change of the last value compared with earlier values."""
    measurements = [value for value in values if value is not None and value.value is not None]
    if (
        len(measurements) < 2
        or values[-1] is not measurements[-1]
        or measurements[-1].better is None
    ):
        return ""
    last, before = measurements[-1], measurements[-2]
    if _misses_bar(last) and not _misses_bar(before):
        return "worse"
    bounds = _bounds(before)
    if bounds is None:
        earlier = [value.value for value in measurements[:-1] if value.value is not None]
        if len(earlier) < 2:
            return ""
        bounds = min(earlier), max(earlier)
    assert last.value is not None
    low, high = _bounds(last) or (last.value, last.value)
    above, below = low > bounds[1], high < bounds[0]
    if not above and not below:
        return ""
    return "better" if above == (last.better == "higher") else "worse"


def _bounds(value: RecordedValue) -> tuple[float, float] | None:
    if value.low is None or value.high is None or value.low == value.high:
        return None
    return value.low, value.high


def _misses_bar(value: RecordedValue) -> bool:
    if value.bar is None or value.value is None:
        return False
    return value.value < value.bar if value.better == "higher" else value.value > value.bar


def rows(series: Series, *, everything: bool) -> list[list[str]]:
    """Return a row for each measurement: its last values, newest last, and how it changed. Without
    `everything`, only measurements of the whole proof and those that became worse."""
    return [
        [course.name, *(_text(value) for value in course.values[-SHOWN:]), course.change]
        for course in series.courses
        if everything or " / " not in course.name or course.change == "worse"
    ]


def heading(series: Series) -> list[str]:
    """Headings of the same table: date, commit and load of the machine."""
    dates = [
        f"{line.date:%Y-%m-%d}\n{_commit(line)}\nload {line.load:.1f}"
        for line in series.lines[-SHOWN:]
    ]
    return ["measurement", *dates, ""]


def _commit(line: Baseline) -> str:
    return f"{line.commit[:8]}{'+' if line.modified else ''}" if line.commit else "?"


def _text(value: RecordedValue | None) -> str:
    if value is None or value.value is None:
        return "–"
    bounds = _bounds(value)
    spread = f"\n({number(bounds[0])}–{number(bounds[1])})" if bounds else ""
    return f"{number(value.value)} {value.unit}".strip() + spread
