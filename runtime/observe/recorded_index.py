"""The runs of the store as a list, the newest first: those that have left the bus.

Ids of runs sort by the time of admission, so an id is where a page ends.
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
"""Place that sorts after every id of a run."""
TEXT_CHARS = 2_000
"""Most characters that a list shows of a question, an answer or a reason."""
MAX_LOOK_SECONDS = 5.0
"""Most seconds of a page, on a busy machine. All rows that a page may look at take one."""
_BATCH = 200
"""Runs of which another list is asked at a time."""
_ID_CHARS = 36


@dataclass(frozen=True)
class RecordedPage:
    """Lines of one page, and the id at which the next begins; None after the last."""

    lines: Sequence[RunLine]
    next_page: str | None


def has_recorded_runs(store: Path) -> bool:
    """Whether there is a list to show."""
    return bool(parquet_files(store / "trajectories"))


def recorded_runs(store: Path) -> NewestRuns:
    """What a process keeps in mind from page to page."""
    return NewestRuns(store / "trajectories")


def parse_place(text: str) -> str:
    """Return the place where a page begins. Raises `InputError`."""
    if text != NEWEST and not (len(text) == _ID_CHARS and set(text) <= set("0123456789abcdef-")):
        raise InputError(f"{text[:64]!r} is not a place in the list of recorded runs")
    return text


IsListed = Callable[[Sequence[str]], Awaitable[Sequence[bool]]]
"""Tells for each of these runs whether another list already has it."""


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
    """The newest runs of the store that match and are not listed elsewhere, below the id `after`.
    One page looks at `MAX_LOOKED` runs at most, and for `MAX_LOOK_SECONDS`; the next one goes on
    behind them.

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
    """Runs that match, out of those that were looked at."""

    rows: Sequence[NewestRow]
    looked: int
    last: str
    """Id of the oldest run that was examined."""
    more: bool


def _look(runs: NewestRuns, query: RunQuery, after: str, most: int, until: float) -> _Look:
    """The next runs below an id: until there are some to ask about, and one at least."""
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
            continue  # A compaction has put another file in this one's place.
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
    """The part of a record that the run's caller wrote."""

    run: _Run


_ASKED = msgspec.json.Decoder(_Asked)


def _matches(row: NewestRow, query: RunQuery, facts_alone: RunQuery) -> bool:
    """Texts are read where the rest of a run matches."""
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
    """Line of a run with all of its texts. A damaged run has none: `runtime runs show` says what is
    wrong with it."""
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
