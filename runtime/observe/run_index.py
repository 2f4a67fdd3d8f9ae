"""Lists the runs on the bus page by page, newest first, filtered by workflow, tag, outcome, time,
cost and words of the question."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from loopline.bus import Bus, Shard
from loopline.runtime.errors import InputError

BATCH = 200
"""Number of runs read in one round trip."""
MAX_LOOKED = 20_000
"""Maximum number of runs that one page examines if a filter leaves few; the next page continues
after them."""
MAX_LOOK_SECONDS = 1.0
"""Maximum seconds for a page on a busy machine: a page without a match must not keep its reader
waiting."""
PASSED_SECONDS = 60.0
MAX_QUERIES = 8
"""Maximum number of queries whose skipped runs are cached."""
MAX_PASSED = 20_000
"""Maximum number of cached ids of skipped runs over all queries. An id takes 150 bytes: 3 MB in
all, and twice that while the current query adds a page."""
_FIELDS = ("run", "state", "outcome", "answer", "reason", "tokens", "micro", "ended", "waits")
_LISTED_SECONDS = 86_400.0
"""Seconds beyond the retention time: older waiting runs have left the list of runs."""


@dataclass(frozen=True)
class RunLine:
    """One run as shown in lists."""

    id: str
    state: str
    """State: `active`, `waiting`, or its outcome."""
    workflow: str
    created: float
    """Admission time in Unix seconds, like all times here."""
    ended: float | None
    tokens: int
    micro_dollars: int
    answer: str
    reason: str
    question: str
    account: str
    parent: str | None
    tags: Mapping[str, str]
    waits: tuple[str, ...] = ()
    """The run's open waits in words."""
    policies: tuple[str, ...] = ()
    """Policies that answer in the run: pools, with their adapters."""
    conversation: str = field(default="", repr=False)
    """Further messages of the caller, only for searches; lists don't show them."""

    def seconds(self, now: float) -> float:
        """Return the seconds that the run took, or has taken so far."""
        return max(0.0, (self.ended or now) - self.created)

    def as_json(self, now: float) -> dict[str, Any]:
        fields = {name: value for name, value in asdict(self).items() if name != "conversation"}
        return {**fields, "seconds": self.seconds(now)}


@dataclass(frozen=True)
class RunQuery:
    """Filter of runs; fields that are None or empty are ignored."""

    workflow: str = ""
    state: str = ""
    """`active`, which includes waiting runs, `waiting`, or an outcome."""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    words: str = ""
    """Words in the question, in the conversation before it or in the answer; case is ignored."""
    account: str = ""
    since: float | None = None
    until: float | None = None
    least_micro_dollars: int = 0
    least_seconds: float = 0.0

    def matches(self, line: RunLine, now: float) -> bool:
        words = self.words.casefold()
        return (
            self.workflow in ("", line.workflow)
            and (self.state in ("", line.state) or (self.state == "active" and bool(line.waits)))
            and self.account in ("", line.account)
            and all(line.tags.get(name) == value for name, value in self.tags.items())
            and line.micro_dollars >= self.least_micro_dollars
            and line.seconds(now) >= self.least_seconds
            and (
                not words
                or words in f"{line.question}\n{line.answer}".casefold()
                or words in line.conversation.casefold()
            )
        )


class Place(NamedTuple):
    """End of a page: the run with this admission time (ms) and id."""

    admitted: int
    run_id: str

    def __str__(self) -> str:
        return f"{self.admitted}.{self.run_id}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Raises `InputError`."""
        admitted, _, run_id = text.partition(".")
        if not admitted.isdecimal() or len(admitted) > 15 or not run_id:
            raise InputError(f"{text[:64]!r} is not a place in the list of runs")
        return cls(int(admitted), run_id)


class Unreadable:
    """Placeholder for a run whose record can't be read."""


@dataclass(frozen=True)
class RunsOfPage:
    """Lines of one page, and the place where the next page starts; None after the last page."""

    lines: Sequence[RunLine]
    next_page: Place | None
    unreadable: Sequence[str] = ()
    """Ids of examined runs whose records can't be read."""


class PassedRuns:
    """Cache of ended runs that a query does not match, so that a list that is refreshed often reads
    them once. An ended run only changes if it is replayed, so skipped runs are read again after
    `PASSED_SECONDS`."""

    def __init__(self) -> None:
        self._of_query: OrderedDict[bytes, tuple[float, set[str]]] = OrderedDict()

    def of(self, query: RunQuery) -> set[str]:
        """Return the ids of the skipped runs of a query; the reader adds to them."""
        key, now = orjson.dumps(asdict(query), option=orjson.OPT_SORT_KEYS), time.monotonic()
        since, passed = self._of_query.pop(key, (now, set[str]()))
        if now - since > PASSED_SECONDS or len(passed) > MAX_PASSED:
            since, passed = now, set()
        # This also drops queries that are not repeated.
        for other, (at, _) in list(self._of_query.items()):
            if now - at > PASSED_SECONDS:
                del self._of_query[other]
        self._of_query[key] = since, passed
        while len(self._of_query) > 1 and (
            len(self._of_query) > MAX_QUERIES or len(self) > MAX_PASSED
        ):
            self._of_query.popitem(last=False)
        return passed

    def __len__(self) -> int:
        """Count the ids, once per query that has skipped them."""
        return sum(len(passed) for _, passed in self._of_query.values())


async def find_runs(
    bus: Bus,
    query: RunQuery,
    count: int = 50,
    after: Place | None = None,
    passed: PassedRuns | None = None,
) -> RunsOfPage:
    """Return the newest matching runs on the bus after the place `after`. Runs that were skipped
    for the same query (`passed`) are not read again."""
    now, lines, looked = bus.clock.now(), list[RunLine](), 0
    until = time.monotonic() + MAX_LOOK_SECONDS
    place, unreadable = after, list[str]()
    skip = set[str]() if passed is None else passed.of(query)
    async for batch in _newest_first(bus, query, after):
        unread = [entry for entry in batch if entry[1].run_id not in skip]
        for place, line in await _read(bus, unread):
            if isinstance(line, Unreadable):
                unreadable.append(place.run_id)
                skip.add(place.run_id)
            elif line is not None and query.matches(line, now):
                lines.append(line)
            elif line is None or line.ended is not None:
                skip.add(place.run_id)
            if len(lines) == count:
                return RunsOfPage(lines, place, unreadable)
        looked += len(batch)
        place = batch[-1][1]
        if looked >= MAX_LOOKED or time.monotonic() > until:
            return RunsOfPage(lines, place, unreadable)
    return RunsOfPage(lines, None, unreadable)


async def list_runs(bus: Bus, query: RunQuery, count: int) -> RunsOfPage:
    """Return the newest matching runs on the bus, regardless of how many must be examined."""
    page = await find_runs(bus, query, count)
    lines, unreadable = [*page.lines], [*page.unreadable]
    while len(lines) < count and page.next_page is not None:
        page = await find_runs(bus, query, count - len(lines), page.next_page)
        lines += page.lines
        unreadable += page.unreadable
    return RunsOfPage(lines, page.next_page, unreadable)


async def _newest_first(
    bus: Bus, query: RunQuery, after: Place | None
) -> AsyncGenerator[list[tuple[Shard, Place]]]:
    """Yield all runs in batches, merging several shards by time."""
    rest = {shard: _shard_places(bus, shard, query, after) for shard in bus.keys.all_shards()}
    heads: dict[Shard, Place] = {}
    batch: list[tuple[Shard, Place]] = []
    try:
        for shard, places in rest.items():
            async for place in places:
                heads[shard] = place
                break
        while heads:
            shard = max(heads, key=heads.__getitem__)
            batch.append((shard, heads.pop(shard)))
            if (place := await anext(rest[shard], None)) is not None:
                heads[shard] = place
            if len(batch) == BATCH or not heads:
                yield batch
                batch = []
    finally:
        for places in rest.values():
            await places.aclose()


async def _shard_places(
    bus: Bus, shard: Shard, query: RunQuery, after: Place | None
) -> AsyncGenerator[Place]:
    """Yield the places of one shard, newest first, by time and then by id."""
    key = shard.runs(query.account)
    newest = "+inf" if query.until is None else str(int(query.until * 1000))
    oldest = "-inf" if query.since is None else str(int(query.since * 1000))
    if after is not None and (newest == "+inf" or after.admitted < int(newest)):
        newest = str(after.admitted)
    offset = 0
    cutoff = int(1000 * (bus.clock.now() - bus.settings.retention_seconds - _LISTED_SECONDS))
    listed: set[str] = set()
    while True:
        members: list[tuple[bytes, float]] = await bus.redis.zrange(
            key,
            newest,  # pyright: ignore[reportArgumentType]
            oldest,  # pyright: ignore[reportArgumentType]
            desc=True,
            withscores=True,
            byscore=True,
            offset=offset,
            num=BATCH,
        )
        for run_id, admitted in members:
            place = Place(int(admitted), run_id.decode())
            if place.admitted <= cutoff:
                listed.add(place.run_id)
            if after is None or place < after:
                yield place
        if len(members) < BATCH:
            break
        offset += BATCH
    for place in await _waiting_places(bus, shard, cutoff):
        if (
            place.run_id not in listed
            and (query.until is None or place.admitted <= int(query.until * 1000))
            and (query.since is None or place.admitted >= int(query.since * 1000))
            and (after is None or place < after)
        ):
            yield place


async def _waiting_places(bus: Bus, shard: Shard, cutoff: int) -> list[Place]:
    """Return waiting runs that were admitted before `cutoff` (ms), newest first."""
    members: list[bytes] = await bus.redis.zrange(shard.waits, 0, -1)
    ids = sorted({member.decode().partition("/")[0] for member in members})
    places: list[Place] = []
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        async with bus.redis.pipeline(transaction=False) as pipe:
            for run_id in batch:
                pipe.hget(shard.run(run_id), "admitted")
            admitted: list[bytes | None] = await pipe.execute()
        places += [
            Place(int(float(moment)), run_id)
            for run_id, moment in zip(batch, admitted, strict=True)
            if moment is not None and int(float(moment)) < cutoff
        ]
    return sorted(places, reverse=True)


async def _read(
    bus: Bus, batch: Sequence[tuple[Shard, Place]]
) -> list[tuple[Place, RunLine | Unreadable | None]]:
    """Return the lines of these places; None for a run whose record has expired."""
    async with bus.redis.pipeline(transaction=False) as pipe:
        for shard, place in batch:
            pipe.hmget(shard.run(place.run_id), list(_FIELDS))
        replies: list[list[bytes | None]] = await pipe.execute()
    return [
        (place, _line(place, dict(zip(_FIELDS, reply, strict=True))))
        for (_, place), reply in zip(batch, replies, strict=True)
    ]


def _line(place: Place, fields: Mapping[str, bytes | None]) -> RunLine | Unreadable | None:
    if fields["run"] is None and fields["state"] is None:
        return None

    def text(name: str) -> str:
        return (fields[name] or b"").decode(errors="replace")

    try:
        # Not parsed as `Run`: long lists need few fields, and also show other versions' runs.
        record: dict[str, Any] = orjson.loads(fields["run"] or b"null")
        active = text("state") == "active"
        return RunLine(
            id=place.run_id,
            state=_state(text("outcome"), active=active, waits=bool(text("waits"))),
            workflow=str(record["workflow"]),
            created=float(record["created"]),
            ended=None if active else float(text("ended")) / 1000,
            tokens=int(text("tokens") or 0),
            micro_dollars=int(text("micro") or 0),
            answer=text("answer"),
            reason=text("reason"),
            question=str(record["task"]["prompt"]),
            account=str(record.get("account", "")),
            parent=record.get("parent"),
            tags=dict(record.get("tags") or {}),
            waits=_waits(text("waits")) if active else (),
            policies=tuple(map(str, (record.get("policies") or {}).values())),
            conversation=_said(record["task"].get("messages") or ()),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return Unreadable()


def _said(messages: Sequence[Mapping[str, Any]]) -> str:
    """Join the texts of messages. A single message is the question."""
    if len(messages) < 2:
        return ""
    return "\n".join(str(message.get("content", "")) for message in messages)


def _state(outcome: str, *, active: bool, waits: bool) -> str:
    if not active:
        return outcome
    return "waiting" if waits else "active"


def _waits(lines: str) -> tuple[str, ...]:
    """Describe the lines that `note_waits` in parts/waits.lua writes: kind, expiry (ms) and
    name."""
    words: list[str] = []
    for line in lines.splitlines():
        kind, expires, name = line.split(" ", 2)
        until = datetime.fromtimestamp(int(expires) / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        what = {
            "signal": f"the signal {name}",
            "approval": "approval",
            "effect": "a call's outcome",
        }.get(kind, "its time")
        words.append(f"{what} until {until}")
    return tuple(words)
