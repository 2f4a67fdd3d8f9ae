"""Lists the store's runs that have left the bus, newest first.

Run ids sort by admission time, so an id marks the end of a page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import orjson

from loopline.bus import Bus
from loopline.runtime.errors import InputError, UserError
from loopline.runtime.observe.run_index import MAX_LOOKED, RunLine, RunQuery
from loopline.workers.store.files import Damaged, parquet_files
from loopline.workers.store.newest_runs import NewestRow, NewestRuns

NEWEST = "g"
"""Place that sorts after every run id."""
TEXT_CHARS = 2_000
"""Maximum characters of a question, an answer or a reason in a list."""
MAX_LOOK_SECONDS = 5.0
"""Maximum seconds for a page on a busy machine. Normally the maximum page takes one second."""
_BATCH = 200
"""Number of runs that are looked up in another list at a time."""
_ID_CHARS = 36


@dataclass(frozen=True)
class RecordedPage:
    """Lines of one page, and the id at which the next page starts; None after the last page."""

    lines: Sequence[RunLine]
    next_page: str | None


def has_recorded_runs(store: Path) -> bool:
    """Whether the store contains runs."""
    return bool(parquet_files(store / "trajectories"))


def recorded_runs(store: Path) -> NewestRuns:
    """Return the reader that a process keeps from page to page."""
    return NewestRuns(store / "trajectories")


def parse_place(text: str) -> str:
    """Parse the place where a page starts. Raises `InputError`."""
    if text != NEWEST and not (len(text) == _ID_CHARS and set(text) <= set("0123456789abcdef-")):
        raise InputError(f"{text[:64]!r} is not a place in the list of recorded runs")
    return text


IsListed = Callable[[Sequence[str]], Awaitable[Sequence[bool]]]
"""Tells for each run whether another list already contains it."""


async def find_recorded_runs(
    bus: Bus, runs: NewestRuns, query: RunQuery, count: int, after: str = NEWEST
) -> RecordedPage:
    """Return `recorded_page` without the runs that are still on the bus."""

    async def is_on_bus(ids: Sequence[str]) -> list[bool]:
        async with bus.redis.pipeline(transaction=False) as pipe:
            for run_id in ids:
                pipe.exists(bus.keys.shard_of(run_id).run(run_id))
            return [bool(reply) for reply in await pipe.execute()]

    return await recorded_page(runs, query, count, after, is_on_bus)


async def recorded_page(
    runs: NewestRuns, query: RunQuery, count: int, after: str, is_listed: IsListed
) -> RecordedPage:
    """Return the newest matching runs of the store below the id `after` that are not listed
    elsewhere. One page examines at most `MAX_LOOKED` runs for at most `MAX_LOOK_SECONDS`; the next
    page continues after them.

    Raises `UserError` for a store that the system can't read.
    """
    if query.state == "active":
        return RecordedPage([], None)
    until = time.monotonic() + MAX_LOOK_SECONDS
    place, looked, more = after, 0, True
    wanted: list[NewestRow] = []
    while more and len(wanted) < count and looked < MAX_LOOKED:
        look = await asyncio.to_thread(_look, runs, query, place, MAX_LOOKED - looked, until)
        more, place = look.more and time.monotonic() <= until, look.last
        looked += look.looked
        listed = await is_listed([row.run_id for row in look.rows]) if look.rows else []
        for row, elsewhere in zip(look.rows, listed, strict=True):
            if elsewhere:
                continue
            wanted.append(row)
            if len(wanted) == count:
                place = row.run_id
                break
        if not look.more and len(wanted) < count:
            place = ""
    lines = await asyncio.to_thread(lambda: [_line(row) for row in wanted])
    return RecordedPage([_shown(line) for line in lines], place or None)


@dataclass(frozen=True)
class _Look:
    """The matching runs among those that were examined."""

    rows: Sequence[NewestRow]
    looked: int
    last: str
    """Id of the oldest run that was examined."""
    more: bool


def _look(runs: NewestRuns, query: RunQuery, after: str, most: int, until: float) -> _Look:
    """Return the next matching runs below an id: one batch, after examining at least one run."""
    rows: list[NewestRow] = []
    looked, last = 0, after
    facts_alone = replace(query, words="")
    while True:
        try:
            for row in runs.below(last, query.since, query.until):
                looked, last = looked + 1, row.run_id
                if _matches(row, query, facts_alone):
                    rows.append(row)
                if len(rows) == _BATCH or looked >= most or time.monotonic() > until:
                    return _Look(rows, looked, last, more=True)
        except FileNotFoundError:
            continue  # A compaction has replaced the file.
        except OSError as error:
            raise UserError(f"the store in {runs.folder.parent} can't be read: {error}") from error
        return _Look(rows, looked, last, more=False)


class _Message(msgspec.Struct):
    content: Any = None


class _Task(msgspec.Struct):
    prompt: str | None = None
    messages: list[_Message] = []


class _Run(msgspec.Struct):
    task: _Task
    account: str = ""
    parent: str | None = None
    policies: dict[str, str] = {}


class _Asked(msgspec.Struct):
    """The part of a record that comes from the run's caller."""

    run: _Run


_ASKED = msgspec.json.Decoder(_Asked)


def _matches(row: NewestRow, query: RunQuery, facts_alone: RunQuery) -> bool:
    """Whether a run matches. Its texts are only read if the rest of the run matches."""
    line = _facts(row, query.account)
    if not (query.since or line.created) <= line.created <= (query.until or line.created):
        return False
    if not facts_alone.matches(line, line.created):
        return False
    return not (query.words or query.account) or query.matches(_line(row), line.created)


def _facts(row: NewestRow, account: str) -> RunLine:
    facts = row.facts
    return RunLine(
        id=row.run_id,
        state=facts["outcome"],
        workflow=facts["workflow"],
        created=facts["created"],
        ended=facts["ended"],
        tokens=facts["tokens"],
        micro_dollars=facts["cost_micro_dollars"],
        answer="",
        reason="",
        question="",
        account=account,
        parent=None,
        tags=orjson.loads(facts["tags"] or "{}"),
    )


def _line(row: NewestRow) -> RunLine:
    """Return the line of a run with all its texts. A damaged run has no texts: `runtime runs show`
    states what is wrong with it."""
    try:
        texts = row.texts()
        record = _ASKED.decode(texts["trajectory"]).run
    except (Damaged, msgspec.MsgspecError, UnicodeDecodeError):
        return _facts(row, "")
    return replace(
        _facts(row, record.account),
        answer=texts["answer"] or "",
        reason=texts["reason"] or "",
        question=record.task.prompt or "",
        parent=record.parent,
        policies=tuple(record.policies.values()),
        conversation="\n".join(str(message.content or "") for message in record.task.messages),
    )


def _shown(line: RunLine) -> RunLine:
    return replace(
        line,
        answer=line.answer[:TEXT_CHARS],
        reason=line.reason[:TEXT_CHARS],
        question=line.question[:TEXT_CHARS],
        conversation="",
    )
