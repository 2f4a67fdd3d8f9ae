"""Costs by day, model, workflow, tag and key."""

from __future__ import annotations

import asyncio
import calendar
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.runtime.config.state import StateDirectory
from loopline.runtime.dashboard.frame import Frame
from loopline.runtime.dashboard.sign_in import Viewer
from loopline.runtime.errors import InputError
from loopline.runtime.gateway.api_keys import uses
from loopline.runtime.observe.cost_words import spent_words
from loopline.runtime.observe.costs import (
    GROUPINGS,
    MAX_DAYS,
    CostLine,
    Grouping,
    read_costs,
    read_unrecorded,
)
from loopline.runtime.terminal.pages import svg
from loopline.runtime.terminal.pages.curves import WIDTH, number
from loopline.runtime.terminal.pages.labels import spaced_ticks, tick_middle

DAY_SECONDS = 86_400
DEFAULT_DAYS = 7
_DAY = "%Y-%m-%d"
_NAMES: Mapping[Grouping, str] = {
    "day": "no day",
    "model": "no model",
    "workflow": "runs without a record",
    "tag": "without a tag",
    "key": "without a key",
}
"""Titles for lines without a name."""
_HEIGHT, _LEFT, _BOTTOM, _TOP = 210.0, 62.0, 44.0, 12.0


@dataclass(frozen=True)
class CostRow:
    """A line as shown in the table."""

    name: str
    dollars: str
    calls: int
    runs: int
    prompt: int
    cached: int
    completion: int


class CostView:
    """The page `/dashboard/cost`."""

    def __init__(self, frame: Frame, state: StateDirectory) -> None:
        self._frame = frame
        self._store = state.store
        self._turn = asyncio.Lock()
        """Allows one query at a time: each may use its full memory limit."""

    def routes(self) -> list[Route]:
        return [Route("/cost", self._frame.page(self._page), methods=["GET"])]

    async def _page(self, request: Request, viewer: Viewer) -> Response:
        fields = request.query_params
        now = self._frame.bus.clock.now()
        first, last = period(fields, now)
        by = grouping(fields)
        unrecorded = await read_unrecorded(self._frame.bus)
        async with self._turn:
            costs = await asyncio.to_thread(
                read_costs,
                self._store,
                unrecorded,
                self._frame.settings.priced_pools,
                since=first,
                until=last + DAY_SECONDS,
                by=by,
            )
        names: dict[str, str] = {}
        if by == "key":
            names = {use.key.id: use.key.name for use in (await uses(self._frame.bus))[0]}
        return self._frame.render(
            request,
            viewer,
            "cost.html.j2",
            title="Cost",
            since=time.strftime(_DAY, time.gmtime(first)),
            until=time.strftime(_DAY, time.gmtime(last)),
            by=by,
            groupings=GROUPINGS,
            total=costs.total,
            spent=cost_words(costs.total),
            drawing=days_plot(costs.days, first, last),
            rows=[_row(line, by, names) for line in costs.lines],
            others=costs.others,
            truncated=costs.truncated,
            unpriced=[
                pool
                for pool in self._frame.settings.models
                if pool not in self._frame.settings.priced_pools
            ],
        )


def period(fields: Mapping[str, str], now: float) -> tuple[float, float]:
    """Return the first and the last day of a form, as the Unix seconds of their starts. Raises
    `InputError`."""
    today = now - now % DAY_SECONDS
    last = _day(fields, "until", today)
    first = _day(fields, "since", last - (DEFAULT_DAYS - 1) * DAY_SECONDS)
    if first > last:
        raise InputError("the first day of the period is after its last")
    if last - first >= MAX_DAYS * DAY_SECONDS:
        raise InputError(f"a period has at most {MAX_DAYS} days")
    return first, last


def _day(fields: Mapping[str, str], name: str, default: float) -> float:
    text = fields.get(name, "").strip()
    if not text:
        return default
    try:
        return float(calendar.timegm(time.strptime(text, _DAY)))
    except ValueError:
        raise InputError(f"{name}: {text[:40]!r} is not a day such as 2026-01-31") from None


def grouping(fields: Mapping[str, str]) -> Grouping:
    """Return the grouping of the table's sums. Raises `InputError`."""
    name = fields.get("by") or "model"
    for known_grouping in GROUPINGS:
        if name == known_grouping:
            return known_grouping
    raise InputError(f"by: {name[:40]!r} is not one of {', '.join(GROUPINGS)}")


def cost_words(line: CostLine) -> str:
    """Format dollars for a reader: an unknown amount is never shown as a number."""
    if not line.calls:
        return "nothing"
    return spent_words(
        line.micro_dollars,
        all_known=not line.unknown_calls,
        none_known=line.unknown_calls == line.calls,
    )


def _row(line: CostLine, by: Grouping, names: Mapping[str, str]) -> CostRow:
    name = line.name or _NAMES[by]
    if key_name := names.get(line.name):
        name = f"{key_name} ({line.name})"
    return CostRow(
        name=name if len(name) <= 200 else f"{name[:200]}…",
        dollars=cost_words(line),
        calls=line.calls,
        runs=line.runs,
        prompt=line.prompt,
        cached=line.cached,
        completion=line.completion,
    )


def _axis_dollars(dollars: float) -> str:
    if dollars >= 100:
        return f"${dollars:,.0f}"
    digits = 2 if dollars >= 1 else 6
    return f"${dollars:.{digits}f}".rstrip("0").rstrip(".")


def days_plot(days: Sequence[CostLine], first: float, last: float) -> str:
    """Plot the dollars of each day, or tokens if nothing has a price. Empty without calls."""
    if not days:
        return ""
    priced = any(line.micro_dollars for line in days)
    values = {
        line.name: (line.micro_dollars / 1e6 if priced else line.prompt + line.completion)
        for line in days
    }
    most = max(values.values()) or 1.0
    count = round((last - first) / DAY_SECONDS) + 1
    y = svg.Scale(0.0, most * 1.08, _HEIGHT - _BOTTOM, _TOP)
    say = _axis_dollars if priced else number
    left = svg.margin_for(map(say, y.ticks(4)), _LEFT, WIDTH / 3)
    x = svg.Scale(0.0, float(count), left, WIDTH - 8)
    parts: list[str] = []
    for tick in y.ticks(4):
        parts.append(svg.line(x.start, y(tick), x.end, y(tick), "grid"))
        words = say(tick)
        parts.append(svg.text(x.start - 6, y(tick) + 4, words, "tick", "end"))
    by_day = {line.name: line for line in days}
    dates = [time.strftime(_DAY, time.gmtime(first + at * DAY_SECONDS)) for at in range(count)]
    middles = [at + 0.5 for at in range(count)]
    for middle, day in spaced_ticks(x, middles, [date[5:] for date in dates], WIDTH):
        place = tick_middle(x, middle, day, WIDTH)
        parts.append(svg.text(place, _HEIGHT - _BOTTOM + 19, day, "tick", "middle"))
    for at, day in enumerate(dates):
        if (line := by_day.get(day)) is None:
            continue
        gap = min(6.0, (x(1) - x(0)) * 0.2)
        top = y(values[day])
        parts.append(
            svg.rect(
                x(at) + gap / 2, top, x(at + 1) - x(at) - gap, y.start - top, "bar arm-0",
                svg.hint(f"{day}: {cost_words(line)}, {line.prompt + line.completion:,} tokens"),
            )
        )  # fmt: skip
    what = "US dollars per day" if priced else "Tokens per day: no call has a price"
    parts.append(svg.text((x.start + x.end) / 2, _HEIGHT - 6, f"{what} (UTC)", "axis", "middle"))
    return svg.picture(WIDTH, _HEIGHT, what, *parts)
