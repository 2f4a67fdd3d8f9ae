"""The list of runs, live."""

from __future__ import annotations

import asyncio
import calendar
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.agents.records import Outcome
from loopline.bus import pool_of
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.dashboard.frame import PATH, Frame, number_of
from loopline.runtime.dashboard.sign_in import Viewer
from loopline.runtime.errors import InputError
from loopline.runtime.observe.cost_words import spent_words
from loopline.runtime.observe.recorded_index import (
    NEWEST,
    find_recorded_runs,
    has_recorded_runs,
    parse_place,
    recorded_runs,
)
from loopline.runtime.observe.run_index import (
    PassedRuns,
    Place,
    RunLine,
    RunQuery,
    RunsOfPage,
    find_runs,
)
from loopline.runtime.terminal.dialogue import milliseconds

COUNT = 50
SHOWN_CHARS = 160
STATES = ("active", "waiting", *(outcome.value for outcome in Outcome))
_TIME = "%Y-%m-%dT%H:%M"


@dataclass(frozen=True)
class Row:
    """A run as shown in the table."""

    id: str
    state: str
    workflow: str
    began: str
    seconds: str
    tokens: int
    dollars: str
    answer: str
    question: str
    tags: Mapping[str, str]


class RunsView:
    """Pages below `/dashboard/runs`."""

    def __init__(self, frame: Frame, state: StateDirectory) -> None:
        self._frame = frame
        self._store = state.store
        self._recorded_runs = recorded_runs(state.store)
        self._priced = frozenset(frame.settings.priced_pools)
        self._passed = PassedRuns()
        self._turn = asyncio.Lock()
        """Allows one page of the store at a time, since pages share one cache of its files."""

    def routes(self) -> list[Route]:
        page = self._frame.page
        return [
            Route("/runs", page(self._page), methods=["GET"]),
            Route("/runs/rows", page(self._rows), methods=["GET"]),
        ]

    async def _page(self, request: Request, viewer: Viewer) -> Response:
        """List the runs on the bus first, then the runs of the store."""
        fields = {name: value for name, value in request.query_params.items() if value}
        query, now = query_of(fields), self._frame.bus.clock.now()
        place = fields.pop("recorded", None)
        is_first = place is None and "after" not in fields
        lines, following = list[RunLine](), dict[str, str]()
        if place is None:
            page = await self._search(fields)
            lines = list(page.lines)
            if page.next_page is not None:
                following = {"after": str(page.next_page)}
            elif query.state not in ("active", "waiting") and has_recorded_runs(self._store):
                place = NEWEST
        recorded: Sequence[RunLine] = ()
        if place is not None:
            recorded, next_place = await self._recorded(query, COUNT - len(lines), place)
            following = {} if next_place is None else {"recorded": next_place}
        filters = {name: value for name, value in fields.items() if name != "after"}
        return self._frame.render(
            request,
            viewer,
            "runs.html.j2",
            title="Runs",
            rows=[self._row(line, now) for line in lines],
            recorded=[self._row(line, now) for line in recorded],
            fields=fields,
            is_empty=is_first and not filters and not lines and not recorded,
            api=f"{request.url.scheme}://{request.url.netloc}/v1",
            states=STATES,
            more=f"{PATH}/runs?" + urlencode({**filters, **following}) if following else None,
            live=f"{PATH}/runs/rows?" + urlencode(fields) if is_first else None,
        )

    async def _rows(self, request: Request, viewer: Viewer) -> Response:
        page = await self._search(request.query_params)
        now = self._frame.bus.clock.now()
        rows = [self._row(line, now) for line in page.lines]
        return self._frame.fragment("run_rows.html.j2", rows=rows)

    async def _recorded(
        self, query: RunQuery, count: int, place: str
    ) -> tuple[Sequence[RunLine], str | None]:
        """Return the store's runs after a place, and the place where the next page starts."""
        if count <= 0:
            return (), place
        async with self._turn:
            page = await find_recorded_runs(
                self._frame.bus, self._recorded_runs, query, count, parse_place(place)
            )
        return page.lines, page.next_page

    async def _search(self, fields: Mapping[str, str]) -> RunsOfPage:
        after = fields.get("after")
        return await find_runs(
            self._frame.bus,
            query_of(fields),
            COUNT,
            None if after is None else Place.parse(after),
            self._passed,
        )

    def _row(self, line: RunLine, now: float) -> Row:
        return Row(
            id=line.id,
            state=line.state,
            workflow=line.workflow,
            began=time.strftime("%m-%d %H:%M:%S", time.gmtime(line.created)),
            seconds=milliseconds(line.seconds(now)),
            tokens=line.tokens,
            dollars=dollars_of(line, self._priced),
            answer=_one_line(line.answer or line.reason or _waits(line)),
            question=_one_line(line.question),
            tags=line.tags,
        )


def query_of(fields: Mapping[str, str]) -> RunQuery:
    """Return the query of a form. Raises `InputError` for a field that can't be read."""
    tags: dict[str, str] = {}
    if tag := fields.get("tag", "").strip():
        name, equals, value = tag.partition("=")
        if not equals:
            raise InputError(f"tag: {tag[:40]!r} is not of the form name=value")
        tags[name] = value
    return RunQuery(
        workflow=fields.get("workflow", "").strip(),
        state=fields.get("state", ""),
        tags=tags,
        words=fields.get("words", "").strip(),
        since=_time(fields, "since"),
        until=_time(fields, "until"),
        least_micro_dollars=int((number_of(fields, "least_dollars") or 0) * 1e6),
        least_seconds=number_of(fields, "least_seconds") or 0.0,
    )


def _time(fields: Mapping[str, str], name: str) -> float | None:
    text = fields.get(name, "")
    if not text:
        return None
    try:
        return float(calendar.timegm(time.strptime(text, _TIME)))
    except ValueError:
        raise InputError(f"{name}: {text[:40]!r} is not a time such as 2026-01-31T18:30") from None


def _waits(line: RunLine) -> str:
    return f"waits for {', '.join(line.waits)}" if line.waits else ""


def dollars_of(line: RunLine, priced: Collection[str]) -> str:
    """Return the cost of a run, given the pools of its policies; empty before its first call."""
    if not line.tokens:
        return ""
    unpriced = any(pool_of(policy) not in priced for policy in line.policies)
    # A run without policies doesn't show whether its pools have prices.
    has_all = not unpriced if line.policies else bool(line.micro_dollars)
    return spent_words(line.micro_dollars, all_known=has_all, none_known=not line.micro_dollars)


def _one_line(text: str) -> str:
    words = " ".join(text[: 4 * SHOWN_CHARS].split())
    return words if len(words) <= SHOWN_CHARS else words[:SHOWN_CHARS] + "…"
