"""The recorder: writes finished runs, the usage ledger and rewards from the bus to Parquet, and
only then acknowledges them.

A file is written completely under another name, flushed to disk and then renamed, so a reader never
sees half of one. A batch that arrives again after a crash, at this recorder or another, is
recognised by its entry ids, which every row contains. A recorder locks the folder from the check
for these ids until the new file is in place: if it was stalled beyond its lease, it finds what
another has written meanwhile and does not write it again. Layout: `<store>/trajectories/*.parquet`,
`<store>/usage/*.parquet` and `<store>/rewards/*.parquet`, a file per batch:
`<shard>-<its first entry>-<its last entry>-<rows>.parquet`. `loopline.workers.store` describes how
these files are compacted and read.
"""

# pyarrow has no type stubs.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

import asyncio
import hashlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from pydantic import TypeAdapter

from loopline.agents.records import RECORDS_VERSION, Step, Trajectory
from loopline.agents.rewards import Reward
from loopline.agents.usage import UsageEntry
from loopline.agents.workflows import add_rewards
from loopline.workers.atomic_files import PARTIAL, atomic_file, write_atomic
from loopline.workers.file_lock import FileLock
from loopline.workers.store.compaction import keep_unreadable
from loopline.workers.store.files import (
    Damaged,
    FileName,
    Place,
    open_parquet,
    read_group,
    unwritable,
)

log = structlog.get_logger("loopline.workers.recorder")

Entry = tuple[str, dict[bytes, bytes]]
_Span = tuple[Place, Place]
"""First and last entry of a file."""

_STEPS = TypeAdapter(tuple[Step, ...])

LOCK_SECONDS = 5.0
"""Longest wait for the folder's lock; writing a batch takes a fraction of a second."""
_LOCK_PAUSE = 0.02

TRAJECTORY_SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("entry", pa.string()),
        ("run_id", pa.string()),
        ("generation", pa.int32()),
        ("workflow", pa.string()),
        ("environment", pa.string()),
        ("outcome", pa.string()),
        ("answer", pa.string()),
        ("reason", pa.string()),
        ("created", pa.float64()),
        ("ended", pa.float64()),
        ("steps", pa.int32()),
        ("calls", pa.int32()),
        ("tokens", pa.int64()),
        ("cost_micro_dollars", pa.int64()),
        ("tags", pa.string()),
        ("trajectory", pa.string()),
        ("sha256", pa.string()),
    ],
    metadata={"records_version": str(RECORDS_VERSION)},
)
"""`trajectory` is the whole record as JSON, `sha256` its content hash; the rest is for queries."""

USAGE_SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("entry", pa.string()),
        ("run_id", pa.string()),
        ("call_id", pa.string()),
        ("agent", pa.string()),
        ("turn", pa.int32()),
        ("branch", pa.int32()),
        ("policy", pa.string()),
        ("base", pa.string()),
        ("adapter", pa.string()),
        ("version", pa.int32()),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("reasoning_tokens", pa.int64()),
        ("source", pa.string()),
        ("cost_micro_dollars", pa.int64()),
        ("discarded", pa.bool_()),
        ("at", pa.float64()),
        ("sent_as", pa.string()),
        ("unknown", pa.string()),
        ("most_prompt_tokens", pa.int64()),
        ("most_completion_tokens", pa.int64()),
        ("most_micro_dollars", pa.int64()),
        ("hedge", pa.string()),
        ("shared_with", pa.string()),
    ],
    metadata={"records_version": str(RECORDS_VERSION)},
)
"""Columns of the usage table. If a call's usage is unknown, tokens, source and cost are null,
`unknown` says why, and the `most_` columns are upper bounds. A known call with the same `run_id`
and `sent_as` replaces it. `hedge` and `shared_with` are as in `UsageEntry`."""


REWARD_SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("entry", pa.string()),
        ("reward_id", pa.string()),
        ("run_id", pa.string()),
        ("session", pa.string()),
        ("agent", pa.string()),
        ("turn", pa.int32()),
        ("source", pa.string()),
        ("value", pa.float64()),
        ("comment", pa.string()),
        ("at", pa.float64()),
        ("reward", pa.string()),
        ("sha256", pa.string()),
    ],
    metadata={"records_version": str(RECORDS_VERSION)},
)
"""`reward` is the whole record as JSON, `sha256` its content hash. Among rows with the same run or
session, agent, turn and source, the one with the greatest `entry` is valid; the others are earlier
versions of it. Rows with the same `reward_id` of one run or session are one reward."""


class Table:
    """One table of the store, to which one shard's batches are appended."""

    def __init__(
        self,
        folder: Path,
        shard: int,
        schema: pa.Schema,
        row_of: Callable[[dict[bytes, bytes]], dict[str, Any]],
        on_rows: Callable[[Iterable[Mapping[str, Any]]], None] | None = None,
    ) -> None:
        """`on_rows` is called with the rows of each batch once they are durable."""
        self.rows = 0
        self._folder = folder
        self._shard = shard
        self._schema = schema
        self._row_of = row_of
        self._on_rows = on_rows
        self._known: dict[str, _Span | None] = {}
        self._end = Place(0, 0)
        """The greatest place in any file of this shard seen so far."""
        folder.mkdir(parents=True, exist_ok=True)

    async def write(self, entries: Sequence[Entry]) -> None:
        """Make a batch durable. Raises OSError with the folder and the remedy if the disk refuses
        to write or another recorder keeps the lock: the batch stays on the bus."""
        try:
            async with self._lock():
                self._write(entries)
        except BlockingIOError:
            raise
        except OSError as error:
            raise unwritable(self._folder, error) from error

    @asynccontextmanager
    async def _lock(self) -> AsyncGenerator[None]:
        lock = FileLock(self._folder)
        waited = 0.0
        while True:
            try:
                lock.acquire()
                break
            except BlockingIOError as error:
                if waited >= LOCK_SECONDS:
                    raise BlockingIOError(
                        error.errno,
                        f"another recorder has locked {self._folder} for {LOCK_SECONDS:g} s: "
                        "if it hangs, stop it; until then the batch stays on the bus",
                    ) from error
            waited += _LOCK_PAUSE
            await asyncio.sleep(_LOCK_PAUSE)
        try:
            yield
        finally:
            lock.release()

    def _write(self, entries: Sequence[Entry]) -> None:
        written = self._written_entries([entry for entry, _ in entries])
        rows: dict[str, dict[str, Any]] = {}
        for entry, fields in entries:
            if entry in written:
                continue
            try:
                rows[entry] = {"shard": self._shard, "entry": entry, **self._row_of(fields)}
            except Exception as error:  # noqa: BLE001 - a workflow's own code says what it earned
                self._quarantine(entry, fields, error)
        table = self._table_of(rows, dict(entries))
        if rows:
            self._write_file(list(rows), table)
            if self._on_rows is not None:
                self._on_rows(rows.values())
        self.rows += len(rows)

    def _table_of(
        self, rows: dict[str, dict[str, Any]], fields: Mapping[str, dict[bytes, bytes]]
    ) -> pa.Table:
        """The rows as columns. A row with a value that does not fit its column is set aside and
        removed from `rows`."""
        try:
            # All at once: row by row takes forty times as long.
            return pa.Table.from_pylist(list(rows.values()), schema=self._schema)
        except Exception:  # noqa: BLE001 - Arrow raises what Python's conversions raise, too
            for entry in list(rows):
                try:
                    pa.Table.from_pylist([rows[entry]], schema=self._schema)
                except Exception as error:  # noqa: BLE001 - see above
                    del rows[entry]
                    self._quarantine(entry, fields[entry], error)
            return pa.Table.from_pylist(list(rows.values()), schema=self._schema)

    def _write_file(self, entries: Sequence[str], table: pa.Table) -> None:
        places = [Place.of(entry) for entry in entries]
        name = FileName(self._shard, min(places), max(places), len(entries))
        # Through a Python file, since Arrow's own errors do not start with the cause.
        with (
            atomic_file(self._folder / str(name)) as partial,
            partial.open("wb") as file,
        ):
            pq.write_table(table, file, compression="zstd", write_page_checksum=True)

    def _quarantine(self, entry: str, fields: dict[bytes, bytes], error: Exception) -> None:
        """Keep an unreadable entry, complete, next to the tables: one bad entry must neither stop
        the rest nor be lost."""
        folder = self._folder.parent / "unreadable"
        folder.mkdir(exist_ok=True)
        body = {key.decode(errors="replace"): value.hex() for key, value in fields.items()}
        path = folder / f"{self._folder.name}-{self._shard:03d}-{entry}.json"
        write_atomic(path, orjson.dumps({"error": str(error), "fields_hex": body}))
        log.error("entry set aside", entry=entry, path=str(path), error=str(error))

    def _written_entries(self, entries: Sequence[str]) -> set[str]:
        """Return the subset of these entries that has been written, by this recorder or another.
        The folder is the only state that recorders share, so it is listed each time, and the file
        names tell which files to read. Only parsed names are cached: no file is ever rewritten
        under the same name."""
        places = sorted(map(Place.of, entries))
        names = os.listdir(self._folder)
        for name in self._known.keys() - set(names):
            del self._known[name]  # a compaction has moved its rows into another file
        for name in names:
            if name.endswith(PARTIAL):
                # Left by a killed recorder, since only the holder of the lock writes.
                (self._folder / name).unlink()
            elif name not in self._known:
                self._learn(name)
        if places[0] > self._end:
            return set()  # new entries come after all others: this is the usual case
        entry_ids: set[str] = set()
        for name in names:
            span = self._known.get(name)
            if span is None or bisect_left(places, span[0]) == bisect_right(places, span[1]):
                continue  # none of the entries is between its first and its last
            entry_ids.update(self._entries_of(self._folder / name))
        return entry_ids

    def _entries_of(self, path: Path) -> list[str]:
        """Entry ids in a file. Empty for a damaged file, which is set aside: it is unreadable, so
        none of its rows can be counted twice."""
        try:
            file = open_parquet(path)
            groups = range(file.metadata.num_row_groups)
            columns = [read_group(path, file, group, ["entry"])["entry"] for group in groups]
        except Damaged as error:
            there = keep_unreadable(path, self._folder)
            path.unlink()
            log.error("damaged file set aside", file=str(path), path=str(there), error=error.why)
            return []
        return [entry for column in columns for entry in column.to_pylist()]

    def _learn(self, name: str) -> None:
        parsed = FileName.parse(name)
        if parsed is None:
            return
        if parsed.shard != self._shard:
            self._known[name] = None
            return
        self._known[name] = parsed.first, parsed.last
        self._end = max(self._end, parsed.last)


def trajectory_of(fields: dict[bytes, bytes]) -> Trajectory:
    """The record in a bus entry, with its workflow's rewards. Raises ValidationError or KeyError,
    and any error of the workflow."""
    return add_rewards(ended_run(fields))


def ended_run(fields: dict[bytes, bytes]) -> Trajectory:
    """The record in a bus entry without rewards, so that no workflow code is run. Raises
    ValidationError or KeyError."""
    outcome, answer, reason = (fields[name].decode() for name in (b"outcome", b"answer", b"reason"))
    steps, ended = _STEPS.validate_json(fields[b"steps"]), int(fields[b"ended"]) / 1000
    return Trajectory.from_texts(fields[b"run"], steps, outcome, answer, reason, ended)


def trajectory_row(fields: dict[bytes, bytes]) -> dict[str, Any]:
    """A bus entry as a row of `TRAJECTORY_SCHEMA`, without its place."""
    record = trajectory_of(fields)
    body = record.model_dump_json()
    calls = [call for step in record.steps for call in step.calls]
    return {
        "run_id": record.run.id,
        "generation": int(fields.get(b"generation", b"0")),
        "workflow": record.run.workflow,
        "environment": record.run.task.environment,
        "outcome": record.outcome.value,
        "answer": record.answer,
        "reason": record.reason,
        "created": record.run.created,
        "ended": record.ended,
        "steps": len(record.steps),
        "calls": len(calls),
        "tokens": sum(call.usage.prompt + call.usage.completion for call in calls),
        "cost_micro_dollars": sum(call.cost_micro_dollars for call in calls),
        "tags": orjson.dumps(record.run.tags).decode(),
        "trajectory": body,
        "sha256": hashlib.sha256(body.encode()).hexdigest(),
    }


def reward_row(fields: dict[bytes, bytes]) -> dict[str, Any]:
    """A posted reward as a row of `REWARD_SCHEMA`, without its place."""
    body = fields[b"reward"]
    record = Reward.model_validate_json(body)
    return {
        **record.model_dump(exclude={"version", "id"}),
        "reward_id": record.id,
        "at": int(fields[b"at"]) / 1000,
        "reward": body.decode(),
        "sha256": hashlib.sha256(body).hexdigest(),
    }


def usage_row(fields: dict[bytes, bytes]) -> dict[str, Any]:
    """A ledger entry as a row of `USAGE_SCHEMA`, without its place."""
    entry = UsageEntry.model_validate_json(fields[b"usage"])
    usage, unknown = entry.usage, entry.unknown
    return {
        "run_id": entry.run_id,
        "call_id": entry.call_id,
        "agent": entry.agent,
        "turn": entry.turn,
        "branch": entry.branch,
        "policy": entry.policy.name,
        "base": entry.policy.base,
        "adapter": entry.policy.adapter,
        "version": entry.policy.version,
        "prompt_tokens": usage and usage.prompt,
        "cached_tokens": usage and usage.cached,
        "completion_tokens": usage and usage.completion,
        "reasoning_tokens": usage and usage.reasoning,
        "source": usage and usage.source,
        "cost_micro_dollars": entry.cost_micro_dollars,
        "discarded": entry.discarded,
        "at": entry.at,
        "sent_as": entry.sent_as,
        "unknown": unknown and unknown.why,
        "most_prompt_tokens": unknown and unknown.prompt,
        "most_completion_tokens": unknown and unknown.completion,
        "most_micro_dollars": unknown and unknown.micro_dollars,
        "hedge": entry.hedge,
        "shared_with": entry.shared_with,
    }
