"""The runs of the store as a list, the newest first: those that have left the bus.

Ids of runs sort by the time of admission, so an id is where a page ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
"""Place that sorts after every id of a run."""
TEXT_CHARS = 2_000
"""Most characters of a question, an answer and a reason; a list shows their beginning."""
_BATCH, _WORDS_BATCH = 1_000, 10_000
"""Runs per look; more when whole records are read."""
_ID_CHARS = 36


@dataclass(frozen=True)
class RecordedPage:
    """Lines of one page, and the id at which the next begins; None after the last."""

    lines: Sequence[RunLine]
    next_page: str | None


def has_recorded_runs(store: Path) -> bool:
    """Whether a list can be shown: files exist, and DuckDB can read them."""
    return find_spec("duckdb") is not None and bool(parquet_files(store / "trajectories"))


def parse_place(text: str) -> str:
    """Return the place where a page begins. Raises `InputError`."""
    if text != NEWEST and not (len(text) == _ID_CHARS and set(text) <= set("0123456789abcdef-")):
        raise InputError(f"{text[:64]!r} is not a place in the list of recorded runs")
    return text


IsListed = Callable[[Sequence[str]], Awaitable[Sequence[bool]]]
"""Tells for each of these runs whether another list already has it."""


async def find_recorded_runs(
    bus: Bus, store: Path, query: RunQuery, count: int, after: str = NEWEST
) -> RecordedPage:
    """Return `recorded_page` without the runs that are still on the bus."""

    async def is_on_bus(ids: Sequence[str]) -> list[bool]:
        async with bus.redis.pipeline(transaction=False) as pipe:
            for run_id in ids:
                pipe.exists(bus.keys.shard_of(run_id).run(run_id))
            return [bool(reply) for reply in await pipe.execute()]

    return await recorded_page(store, query, count, after, is_on_bus)


async def recorded_page(
    store: Path, query: RunQuery, count: int, after: str, is_listed: IsListed
) -> RecordedPage:
    """Return the newest runs of the store that match and are not listed elsewhere, below the id
    `after`. One page examines `MAX_LOOKED` runs at most; the next one continues after them. Raises
    `UserError` as `bounded_queries`.

    Raises `UserError` as `bounded_queries`.
    """
    if query.state == "active":
        return RecordedPage([], None)
    with bounded_queries(store) as connection:
        if not await asyncio.to_thread(add_view, connection, store, "trajectories"):
            return RecordedPage([], None)
        place, wanted, looked = after, list[str](), 0
        more = True
        while more and len(wanted) < count and looked < MAX_LOOKED:
            batch = await asyncio.to_thread(_ids, connection, query, place)
            more, place = batch.more, batch.last
            looked += batch.looked
            for run_id, listed in zip(batch.ids, await is_listed(batch.ids), strict=True):
                if listed:
                    continue
                wanted.append(run_id)
                if len(wanted) == count:
                    more, place = True, run_id
                    break
        lines = await asyncio.to_thread(_lines, connection, wanted)
        return RecordedPage(lines, place if more else None)


@dataclass(frozen=True)
class _Ids:
    """Matching runs among those that were examined."""

    ids: Sequence[str]
    looked: int
    last: str
    """Id of the oldest run that was examined."""
    more: bool


def _ids(connection: Any, query: RunQuery, after: str) -> _Ids:
    """Examine the next runs below an id. A search for words examines fewer of them, since it reads
    whole records."""
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
    inner: list[str] = []
    if query.words:
        inner.append(
            "(contains(lower(coalesce(answer, '')), lower($words)) OR contains("
            "lower(json_extract_string(trajectory, '$.run.task.prompt')), lower($words)) "
            "OR contains(lower(coalesce(array_to_string(json_extract_string(trajectory, "
            "'$.run.task.messages[*].content'), chr(10)), '')), lower($words)))"
        )
        values["words"] = query.words
    if query.account:
        inner.append("json_extract_string(trajectory, '$.run.account') = $account")
        values["account"] = query.account
    batch = _WORDS_BATCH if inner else _BATCH

    def select(conditions: Sequence[str], values: Mapping[str, Any]) -> list[str]:
        where = " AND ".join(conditions)
        rows = connection.execute(
            f"SELECT run_id FROM trajectories WHERE {where} ORDER BY run_id DESC LIMIT {batch}",
            {name: value for name, value in values.items() if f"${name}" in where},
        )
        return [row[0] for row in rows.fetchall()]

    ids = select(conditions, values)
    if not ids:
        return _Ids([], 0, after, more=False)
    matching = ids
    if inner:
        matching = select([*conditions, "run_id >= $last", *inner], {**values, "last": ids[-1]})
    return _Ids(matching, len(ids), ids[-1], more=len(ids) == batch)


def _lines(connection: Any, ids: Sequence[str]) -> list[RunLine]:
    if not ids:
        return []
    rows = connection.execute(
        "SELECT run_id, outcome, workflow, created, ended, tokens, cost_micro_dollars, "
        f"left(coalesce(answer, ''), {TEXT_CHARS}), left(coalesce(reason, ''), {TEXT_CHARS}), "
        f"left(coalesce(json_extract_string(trajectory, '$.run.task.prompt'), ''), {TEXT_CHARS}), "
        "coalesce(json_extract_string(trajectory, '$.run.account'), ''), "
        "json_extract_string(trajectory, '$.run.parent'), tags, "
        "json_extract(trajectory, '$.run.policies') FROM trajectories "
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
            policies=tuple(map(str, orjson.loads(policies or "{}").values())),
        )
        for (
            run_id, outcome, workflow, created, ended, tokens, micro, answer, reason, question,
            account, parent, tags, policies,
        ) in rows
    ]  # fmt: skip
