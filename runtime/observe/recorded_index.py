"""The runs of the store as a list, the newest first: those that have left the bus.

Ids of runs sort by the time of admission, so an id is where a page ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from loopline.bus import Bus
from loopline.runtime.errors import InputError
from loopline.runtime.observe.run_index import MAX_LOOKED, RunLine, RunQuery
from loopline.runtime.observe.store_views import add_view, bounded_queries
from loopline.workers.store.files import parquet_files

NEWEST = "g"
"""Sorts behind every id of a run."""
TEXT_CHARS = 2_000
"""Of a question, an answer and a reason, of which a list shows the beginning."""
_BATCH = 1_000
_ID_CHARS = 36


@dataclass(frozen=True)
class RecordedPage:
    """Lines of one page, and the id after which the next begins; None after the last."""

    lines: Sequence[RunLine]
    next_page: str | None


def has_recorded_runs(store: Path) -> bool:
    """Whether there is a list to show: files, and DuckDB to read them with."""
    return find_spec("duckdb") is not None and bool(parquet_files(store / "trajectories"))


def parse_place(text: str) -> str:
    """Where a page begins. Raises `InputError`."""
    if text != NEWEST and not (len(text) == _ID_CHARS and set(text) <= set("0123456789abcdef-")):
        raise InputError(f"{text[:64]!r} is not a place in the list of recorded runs")
    return text


async def find_recorded_runs(
    bus: Bus, store: Path, query: RunQuery, count: int, after: str = NEWEST
) -> RecordedPage:
    """The newest runs of the store that match and that the bus does not list any more, below the
    id `after`. One page looks at `MAX_LOOKED` runs at most; the next one goes on behind them.

    Raises `UserError` as `bounded_queries`.
    """
    if query.state == "active":
        return RecordedPage([], None)
    with ExitStack() as stack:
        connection = stack.enter_context(bounded_queries(store))
        if not await asyncio.to_thread(add_view, connection, store, "trajectories"):
            return RecordedPage([], None)
        place, wanted, looked = after, list[str](), 0
        more = True
        while more and len(wanted) < count and looked < MAX_LOOKED:
            batch = await asyncio.to_thread(_ids, connection, query, place)
            more = batch.more
            looked += batch.looked
            place = batch.last
            for run_id, on_bus in zip(batch.ids, await _on_bus(bus, batch.ids), strict=True):
                if on_bus:
                    continue
                wanted.append(run_id)
                if len(wanted) == count:
                    more, place = True, run_id
                    break
        lines = await asyncio.to_thread(_lines, connection, wanted)
        return RecordedPage(lines, place if more else None)


@dataclass(frozen=True)
class _Ids:
    """Runs that match, out of those that were looked at."""

    ids: Sequence[str]
    looked: int
    last: str
    """The id of the oldest run that was looked at."""
    more: bool


def _ids(connection: Any, query: RunQuery, after: str) -> _Ids:
    """A look at the next runs below an id. Words are searched for in a bounded number of them: that
    reads whole records."""
    conditions, values = ["run_id < $after"], dict[str, Any](after=after)
    for name, value, condition in (
        ("workflow", query.workflow, "workflow = $workflow"),
        ("state", query.state, "outcome = $state"),
        ("since", query.since, "created >= $since"),
        ("until", query.until, "created <= $until"),
        ("micro", query.least_micro_dollars, "cost_micro_dollars >= $micro"),
        ("seconds", query.least_seconds, "ended - created >= $seconds"),
    ):
        if value:
            conditions.append(condition)
            values[name] = value
    for number, (name, value) in enumerate(query.tags.items()):
        conditions.append(f"CAST(tags::JSON AS MAP(VARCHAR, VARCHAR))[$n{number}] = $v{number}")
        values |= {f"n{number}": name, f"v{number}": value}
    looked = (
        f"FROM trajectories WHERE {' AND '.join(conditions)} ORDER BY run_id DESC LIMIT {_BATCH}"
    )
    ids = [row[0] for row in connection.execute(f"SELECT run_id {looked}", values).fetchall()]
    if not ids:
        return _Ids([], 0, after, more=False)
    chosen = ids
    inner: list[str] = []
    if query.words:
        inner.append(
            "(contains(lower(coalesce(answer, '')), lower($words)) OR contains("
            "lower(json_extract_string(trajectory, '$.run.task.prompt')), lower($words)))"
        )
    if query.account:
        inner.append("json_extract_string(trajectory, '$.run.account') = $account")
    if inner:
        matching = connection.execute(
            "SELECT run_id FROM trajectories WHERE run_id <= $first AND run_id >= $last AND "
            f"list_contains($ids, run_id) AND {' AND '.join(inner)} ORDER BY run_id DESC",
            {
                "first": ids[0],
                "last": ids[-1],
                "ids": ids,
                **({"words": query.words} if query.words else {}),
                **({"account": query.account} if query.account else {}),
            },
        )
        chosen = [row[0] for row in matching.fetchall()]
    return _Ids(chosen, len(ids), ids[-1], more=len(ids) == _BATCH)


async def _on_bus(bus: Bus, ids: Sequence[str]) -> list[bool]:
    async with bus.redis.pipeline(transaction=False) as pipe:
        for run_id in ids:
            pipe.exists(bus.keys.shard_of(run_id).run(run_id))
        return [bool(reply) for reply in await pipe.execute()]


def _lines(connection: Any, ids: Sequence[str]) -> list[RunLine]:
    if not ids:
        return []
    rows = connection.execute(
        "SELECT run_id, outcome, workflow, created, ended, tokens, cost_micro_dollars, "
        f"left(coalesce(answer, ''), {TEXT_CHARS}), left(coalesce(reason, ''), {TEXT_CHARS}), "
        f"left(coalesce(json_extract_string(trajectory, '$.run.task.prompt'), ''), {TEXT_CHARS}), "
        "coalesce(json_extract_string(trajectory, '$.run.account'), ''), "
        "json_extract_string(trajectory, '$.run.parent'), tags FROM trajectories "
        "WHERE run_id <= $first AND run_id >= $last AND list_contains($ids, run_id) "
        "ORDER BY run_id DESC",
        {"first": ids[0], "last": ids[-1], "ids": list(ids)},
    ).fetchall()
    return [
        RunLine(
            id=run_id,
            state=outcome,
            workflow=workflow,
            created=created,
            ended=ended,
            tokens=tokens,
            micro_dollars=micro,
            answer=answer,
            reason=reason,
            question=question,
            account=account,
            parent=parent,
            tags=orjson.loads(tags or "{}"),
        )
        for (
            run_id, outcome, workflow, created, ended, tokens, micro, answer, reason, question,
            account, parent, tags,
        ) in rows
    ]  # fmt: skip
