"""Outcome of a proof: measurements with interval and bar, violations, and the facts around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any, Literal

from loopline.agents.records import Record
from loopline.bench.statistics import Interval, Spread

Better = Literal["higher", "lower"]


class Measurement(Record):
    """One number, in the stated unit."""

    name: str
    """Name of the quantity: a column of its table."""
    value: float
    low: float | None = None
    high: float | None = None
    """Bounds of the value: least and greatest of the repeats, or of a 95 % interval."""
    unit: str = ""
    bar: float | None = None
    """Value to reach, on the side that `better` states; None for a figure without a bar."""
    better: Better | None = None
    """Direction that is better; None if neither is."""
    subject: str = ""
    """Measured subject: a row of its table. Empty for a figure of the whole proof."""
    group: str = ""
    """Table to which a subject belongs."""

    @property
    def key(self) -> str:
        """Name that is unique among all measurements."""
        return " / ".join(filter(None, (self.group, self.subject, self.name)))

    @property
    def met(self) -> bool | None:
        """Whether the bar is reached; None without a bar."""
        if self.bar is None:
            return None
        return self.value >= self.bar if self.better == "higher" else self.value <= self.bar

    def text(self, between: str = " ") -> str:
        """Format the value with its bounds, such as `12.3 (10.1–15.0)`."""
        if self.low is None or self.high is None or self.low == self.high or isnan(self.value):
            return number(self.value)
        return f"{number(self.value)}{between}({number(self.low)}–{number(self.high)})"


def measured(
    name: str,
    value: float | Spread | Interval,
    unit: str = "",
    *,
    scale: float = 1.0,
    bar: float | None = None,
    better: Better | None = None,
    subject: str = "",
    group: str = "",
) -> Measurement:
    """Return a measurement of a number, of repeats or of an interval; `scale` converts it to the
    unit."""
    low = high = None
    if isinstance(value, Spread):
        value, low, high = value.median, scale * value.least, scale * value.greatest
    elif isinstance(value, Interval):
        value, low, high = value.estimate, scale * value.low, scale * value.high
    return Measurement(
        name=name, value=scale * value, low=low, high=high, unit=unit, bar=bar, better=better,
        subject=subject, group=group,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise: the rule, how it was broken, and the subject (a run, a request)."""

    rule: str
    message: str
    subject: str = ""

    def __str__(self) -> str:
        where = f" {self.subject}:" if self.subject else ""
        return f"[{self.rule}]{where} {self.message}"


@dataclass
class Plot:
    """A drawing of the page, as SVG."""

    drawing: str
    caption: str


@dataclass
class Outcome:
    """Outcome of one run of a proof, so far or at the end."""

    about: str = ""
    """The subject and method of the measurements, in a sentence or two."""
    measurements: list[Measurement] = field(default_factory=list[Measurement])
    violations: list[Violation] = field(default_factory=list[Violation])
    """The first violations; `broken` counts all."""
    broken: Counter[str] = field(default_factory=Counter[str])
    """Number of violations by rule."""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    """Counts and names that are not compared: plain values."""
    notes: list[str] = field(default_factory=list[str])
    """Sentences after the tables."""
    plots: list[Plot] = field(default_factory=list[Plot])
    context: Callable[[Violation], Iterable[str]] = lambda violation: ()
    """Return the lines that explain a violation: the history around it."""

    def violate(self, violations: Iterable[Violation]) -> None:
        """Add violations, and count them."""
        for violation in violations:
            self.violations.append(violation)
            self.broken[violation.rule] += 1

    @property
    def missed(self) -> list[Measurement]:
        """Measurements that do not reach their bars."""
        return [measurement for measurement in self.measurements if measurement.met is False]

    @property
    def passed(self) -> bool:
        return not self.missed and not self.broken


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    title: str
    head: list[str]
    rows: list[list[str]]


def tables(measurements: Sequence[Measurement]) -> list[Table]:
    """Return a table for each group, with a row for each subject and a column for each quantity,
    then a table of the whole proof's figures with their bars."""
    grouped: dict[str, list[Measurement]] = {}
    whole: list[Measurement] = []
    for measurement in measurements:
        place = grouped.setdefault(measurement.group, []) if measurement.subject else whole
        place.append(measurement)
    result = [_by_subject(group, members) for group, members in grouped.items()]
    if whole:
        rows = [[m.name, m.text(), m.unit, _bar_text(m), _verdict(m)] for m in whole]
        result.append(Table("Measurements", ["measurement", "value", "unit", "bar", ""], rows))
    return result


def _by_subject(group: str, members: Sequence[Measurement]) -> Table:
    names = list(dict.fromkeys(_heading(member) for member in members))
    rows: dict[str, dict[str, str]] = {}
    for member in members:
        rows.setdefault(member.subject, {})[_heading(member)] = member.text(between="\n")
    return Table(
        group,
        ["", *names],
        [[subject, *(cells.get(name, "") for name in names)] for subject, cells in rows.items()],
    )


def _heading(measurement: Measurement) -> str:
    unit = f" {measurement.unit}" if measurement.unit else ""
    return f"{measurement.name}{unit}"


def _bar_text(measurement: Measurement) -> str:
    if measurement.bar is None:
        return ""
    sign = "≥" if measurement.better == "higher" else "≤"
    return f"{sign} {number(measurement.bar)}"


def _verdict(measurement: Measurement) -> str:
    return {None: "", True: "met", False: "missed"}[measurement.met]


def number(value: float) -> str:
    """Format a number with about three significant digits; `–` for NaN."""
    size = abs(value)
    if isnan(value):
        return "–"
    if value == round(value) and size < 1e15:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.3f}" if size >= 0.01 else f"{value:.1e}"
