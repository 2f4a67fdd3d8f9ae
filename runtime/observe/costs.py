"""The cost of model calls by day, model, workflow, tag or API key.

The sums come from the ledger: the store's files and the entries on the bus that no recorder has
written yet. A call to a pool without a price has 0 micro-dollars in the ledger; here it counts as a
call of unknown cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from loopline.bus import Bus
from loopline.runtime.observe.store_views import add_view, bounded_queries

Grouping = Literal["day", "model", "workflow", "tag", "key"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
MAX_GROUPS = 200
"""Maximum number of groups listed, most expensive first; the others share one line."""
MAX_DAYS = 400
MAX_UNRECORDED = 50_000
"""Maximum number of ledger entries read from the bus, newest first."""
_BATCH = 1_000
_RUNS_BATCH = 500

_GROUP_BY: Mapping[Grouping, str] = {
    "day": "strftime(make_timestamp((\"at\" * 1e6)::BIGINT), '%Y-%m-%d')",
    "model": "policy || CASE WHEN base = policy THEN '' ELSE ' (' || base || ')' END",
    "workflow": "coalesce(workflow, '')",
    "tag": "coalesce(tag, '')",
    "key": "coalesce(account, '')",
}

_SUMS = """
    count(*) AS calls,
    count(DISTINCT run_id) AS runs,
    coalesce(sum(prompt_tokens), 0) AS prompt,
    coalesce(sum(cached_tokens), 0) AS cached,
    coalesce(sum(completion_tokens), 0) AS completion,
    coalesce(sum(cost_micro_dollars), 0) AS micro,
    count(*) FILTER (NOT priced OR unknown IS NOT NULL) AS unknown_calls,
    coalesce(sum(most_micro_dollars) FILTER (priced), 0) AS most
"""

_ENTRIES = """
WITH entries AS (
    SELECT * FROM ({sources}) WHERE "at" >= $since AND "at" < $until
    QUALIFY row_number() OVER (PARTITION BY shard, entry ORDER BY shard) = 1
), charged AS (
    -- A known call of the same sending counts in an unknown one's place.
    SELECT *, list_contains($priced, policy) AS priced FROM entries AS entry
    WHERE unknown IS NULL OR NOT EXISTS (
        SELECT 1 FROM entries AS other WHERE other.unknown IS NULL
        AND other.run_id = entry.run_id AND other.sent_as = entry.sent_as AND entry.sent_as <> '')
)
"""

_USAGE_COLUMNS = (
    "shard", "entry", "run_id", "policy", "base", "prompt_tokens", "cached_tokens",
    "completion_tokens", "cost_micro_dollars", '"at"', "sent_as", "unknown", "most_micro_dollars",
)  # fmt: skip


@dataclass(frozen=True)
class CostLine:
    """Costs of one group of calls."""

    name: str
    """The day, model, workflow, tag (`name=value`) or key (its id); empty for none."""
    calls: int
    runs: int
    prompt: int
    cached: int
    completion: int
    micro_dollars: int
    """Cost of the calls whose cost is known, in millionths of a US dollar."""
    unknown_calls: int
    """Number of calls to pools without a price and calls with unknown usage."""
    most_unknown_micro_dollars: int
    """Maximum cost of the calls with unknown usage, if their pool has a price."""


@dataclass(frozen=True)
class Costs:
    """Costs of a period."""

    total: CostLine
    days: Sequence[CostLine]
    """One line per day in order; days without a call are left out."""
    lines: Sequence[CostLine]
    """One line per group, most expensive first."""
    others: int
    """Number of groups beyond `MAX_GROUPS`, which are not listed."""
    truncated: bool
    """Whether the bus has more entries than were read."""


@dataclass(frozen=True)
class Unrecorded:
    """The part of the ledger that may not be in the store yet."""

    entries: Sequence[Mapping[str, Any]]
    """The entries as rows of the store's table `usage`."""
    runs: Sequence[Mapping[str, Any]]
    """`run_id`, `workflow`, `account` and `tags` (JSON) of the entries' runs."""
    truncated: bool = False


async def read_unrecorded(bus: Bus) -> Unrecorded:
    """Read the ledger entries on the bus; a recorder may have written some of them."""
    rows: list[dict[str, Any]] = []
    truncated = False
    shards = bus.keys.all_shards()
    for shard in shards:
        newest, left = "+", MAX_UNRECORDED // len(shards)
        while left > 0:
            entries: list[tuple[bytes, dict[bytes, bytes]]] = await bus.redis.xrevrange(
                shard.ledger, newest, "-", min(_BATCH, left)
            )
            # Many entries would block the event loop, on which the gateway's streams run.
            rows += await asyncio.to_thread(_usage_rows, shard.index, entries)
            if len(entries) < min(_BATCH, left):
                break
            left -= len(entries)
            newest = f"({entries[-1][0].decode()}"
        else:
            truncated = True
    runs = await _runs_of(bus, sorted({row["run_id"] for row in rows}))
    return Unrecorded(rows, runs, truncated)


def _usage_rows(
    shard: int, entries: Sequence[tuple[bytes, dict[bytes, bytes]]]
) -> list[dict[str, Any]]:
    """Return the entries' rows, except entries of a newer program, whose recorder reads them."""
    from loopline.workers.recorder import usage_row

    rows: list[dict[str, Any]] = []
    for entry, fields in entries:
        try:
            rows.append({"shard": shard, "entry": entry.decode(), **usage_row(fields)})
        except (ValueError, KeyError):
            continue
    return rows


async def _runs_of(bus: Bus, run_ids: Sequence[str]) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = []
    for start in range(0, len(run_ids), _RUNS_BATCH):
        async with bus.redis.pipeline(transaction=False) as pipe:
            batch = run_ids[start : start + _RUNS_BATCH]
            for run_id in batch:
                pipe.hget(bus.keys.shard_of(run_id).run(run_id), "run")
            bodies: list[bytes | None] = await pipe.execute()
        for run_id, body in zip(batch, bodies, strict=True):
            try:
                record: dict[str, Any] = orjson.loads(body or b"null")
                runs.append(
                    {
                        "run_id": run_id,
                        "workflow": str(record["workflow"]),
                        "account": str(record.get("account", "")),
                        "tags": orjson.dumps(record.get("tags") or {}).decode(),
                    }
                )
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
    return runs


def read_costs(
    store: Path,
    unrecorded: Unrecorded,
    priced: Collection[str],
    *,
    since: float,
    until: float,
    by: Grouping,
) -> Costs:
    """Sum up a period (Unix seconds, excluding `until`). `priced`: the pools with a price. Blocks
    the thread. Raises `UserError` like `bounded_queries`."""
    with bounded_queries(store) as connection:
        return _read(connection, store, unrecorded, priced, since, until, by)


def _read(
    connection: Any,
    store: Path,
    unrecorded: Unrecorded,
    priced: Collection[str],
    since: float,
    until: float,
    by: Grouping,
) -> Costs:
    import pyarrow as pa

    from loopline.workers.recorder import USAGE_SCHEMA

    columns = ", ".join(_USAGE_COLUMNS)
    connection.register(
        "unrecorded", pa.Table.from_pylist(list(unrecorded.entries), schema=USAGE_SCHEMA)
    )
    sources = [f"SELECT {columns} FROM unrecorded"]
    if add_view(connection, store, "usage"):
        sources.append(f"SELECT {columns} FROM usage")
    entries = _ENTRIES.format(sources=" UNION ALL ".join(sources))
    values = {"since": since, "until": until, "priced": sorted(priced)}
    days = _lines(connection, entries, "day", "charged", values, "1")
    total = _lines(connection, entries, None, "charged", values, "1")[0]
    if by == "day":
        return Costs(total, days, list(reversed(days)), 0, unrecorded.truncated)
    table = "charged"
    if by != "model":
        _add_runs(connection, store, unrecorded, by)
        table = "charged LEFT JOIN runs USING (run_id)"
    if by == "tag":
        table += " LEFT JOIN run_tags USING (run_id)"
    order = "micro DESC, completion DESC, 1"
    lines = _lines(connection, entries, by, table, values, order)
    return Costs(
        total, days, lines[:MAX_GROUPS], max(0, len(lines) - MAX_GROUPS), unrecorded.truncated
    )


def _lines(
    connection: Any,
    entries: str,
    by: Grouping | None,
    table: str,
    values: Mapping[str, Any],
    order: str,
) -> list[CostLine]:
    name = "''" if by is None else _GROUP_BY[by]
    group = "" if by is None else "GROUP BY 1"
    rows = connection.execute(
        f"{entries} SELECT {name} AS name, {_SUMS} FROM {table} {group} ORDER BY {order} "
        f"LIMIT {10 * MAX_GROUPS}",
        dict(values),
    ).fetchall()
    return [CostLine(str(row[0]), *(int(value) for value in row[1:])) for row in rows]


def _add_runs(connection: Any, store: Path, unrecorded: Unrecorded, by: Grouping) -> None:
    """Create the table `runs`, and `run_tags` with a row for each tag of each run."""
    import pyarrow as pa

    schema = pa.schema([(name, pa.string()) for name in ("run_id", "workflow", "account", "tags")])
    connection.register("live_runs", pa.Table.from_pylist(list(unrecorded.runs), schema=schema))
    sources = ["SELECT run_id, workflow, account, tags FROM live_runs"]
    if add_view(connection, store, "trajectories"):
        # Only the whole record contains the caller, so it is read only if needed.
        account = "json_extract_string(trajectory, '$.run.account')" if by == "key" else "''"
        sources.append(
            f"SELECT run_id, workflow, {account} AS account, tags FROM trajectories "
            "WHERE run_id NOT IN (SELECT run_id FROM live_runs)"
        )
    connection.execute(f"CREATE VIEW runs AS {' UNION ALL '.join(sources)}")
    connection.execute(
        "CREATE VIEW run_tags AS SELECT run_id, pair.key || '=' || pair.value AS tag FROM ("
        "SELECT run_id, unnest(map_entries(CAST(tags::JSON AS MAP(VARCHAR, VARCHAR)))) AS pair "
        "FROM runs)"
    )
