"""The recorder: finished runs and the usage ledger, from the bus to Parquet, before they are
acknowledged.

A file is written whole under another name, flushed to the disk and then renamed, so a reader
never sees half of one. A batch that comes again after a crash is recognised by the ids of its
entries, which stand in every row. Layout: `<store>/trajectories/*.parquet` and
`<store>/usage/*.parquet`, a file per batch, named after its first entry.
"""

# pyarrow has no type stubs.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from agents.records import RECORDS_VERSION, Outcome, Run, Step, Trajectory, UsageEntry
from agents.workflows import rewarded

log = structlog.get_logger("workers.recorder")

Entry = tuple[str, dict[bytes, bytes]]

REMEMBERED_FILES = 64
"""Newest files whose entry ids are known at start. A batch that was written but not acknowledged
lies in the last file of one recorder; more recorders than this are not needed for one bus."""

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
    ],
    metadata={"records_version": str(RECORDS_VERSION)},
)


class Table:
    """One kind of rows in the store, appended to by one shard's batches."""

    def __init__(
        self,
        folder: Path,
        shard: int,
        schema: pa.Schema,
        row_of: Callable[[dict[bytes, bytes]], dict[str, Any]],
    ) -> None:
        self.rows = 0
        self._folder = folder
        self._shard = shard
        self._schema = schema
        self._row_of = row_of
        folder.mkdir(parents=True, exist_ok=True)
        self._known = self._entries_on_disk()

    async def write(self, entries: Sequence[Entry]) -> None:
        """Make a batch durable. Raises OSError with the folder and the remedy if the disk
        refuses: the batch stays on the bus."""
        try:
            self._write(entries)
        except OSError as error:
            raise OSError(
                error.errno or errno.EIO,
                f"{self._folder} can't be written to ({error.strerror or error}): free some space "
                "or mend its rights; until then the batch stays on the bus",
            ) from error

    def _write(self, entries: Sequence[Entry]) -> None:
        rows: list[pa.RecordBatch] = []
        first = ""
        for entry, fields in entries:
            if entry in self._known:
                continue
            try:
                row = {"shard": self._shard, "entry": entry, **self._row_of(fields)}
                # One by one: a number that fits no column spoils its own row only.
                rows.append(pa.RecordBatch.from_pylist([row], schema=self._schema))
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                self._set_aside(entry, fields, error)
            else:
                first = first or entry
        if rows:
            self._write_file(first, rows)
        self._known.update(entry for entry, _ in entries)
        self.rows += len(rows)

    def _write_file(self, first: str, rows: list[pa.RecordBatch]) -> None:
        name = f"{self._shard:03d}-{first}-{len(rows)}"
        part = self._folder / f".{name}.{os.getpid()}.part"
        try:
            with part.open("wb") as file:
                table = pa.Table.from_batches(rows, schema=self._schema).combine_chunks()
                pq.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            part.rename(self._folder / f"{name}.parquet")
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        self._sync_folder()

    def _set_aside(self, entry: str, fields: dict[bytes, bytes], error: Exception) -> None:
        """Keep what can't be read, whole, beside the tables: one bad entry must not stop the
        rest, and must not be lost either."""
        folder = self._folder.parent / "unreadable"
        folder.mkdir(exist_ok=True)
        body = {key.decode(errors="replace"): value.hex() for key, value in fields.items()}
        path = folder / f"{self._folder.name}-{self._shard:03d}-{entry}.json"
        with path.open("wb") as file:
            file.write(orjson.dumps({"error": str(error), "fields_hex": body}))
            file.flush()
            os.fsync(file.fileno())
        log.error("entry set aside", entry=entry, path=str(path), error=str(error))

    def _entries_on_disk(self) -> set[str]:
        files = sorted(
            self._folder.glob(f"{self._shard:03d}-*.parquet"),
            key=lambda path: path.stat().st_mtime,
        )
        known: set[str] = set()
        for path in files[-REMEMBERED_FILES:]:
            known.update(pq.read_table(path, columns=["entry"])["entry"].to_pylist())
        return known

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def trajectory_of(fields: dict[bytes, bytes]) -> Trajectory:
    """The record in a bus entry, with its workflow's rewards. Raises ValidationError,
    JSONDecodeError or KeyError."""
    return rewarded(
        Trajectory(
            run=Run.model_validate_json(fields[b"run"]),
            steps=tuple(Step.model_validate(step) for step in orjson.loads(fields[b"steps"])),
            outcome=Outcome(fields[b"outcome"].decode()),
            answer=fields[b"answer"].decode() or None,
            reason=fields[b"reason"].decode() or None,
            ended=int(fields[b"ended"]) / 1000,
        )
    )


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


def usage_row(fields: dict[bytes, bytes]) -> dict[str, Any]:
    """A ledger entry as a row of `USAGE_SCHEMA`, without its place."""
    entry = UsageEntry.model_validate_json(fields[b"usage"])
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
        "prompt_tokens": entry.usage.prompt,
        "cached_tokens": entry.usage.cached,
        "completion_tokens": entry.usage.completion,
        "reasoning_tokens": entry.usage.reasoning,
        "source": entry.usage.source,
        "cost_micro_dollars": entry.cost_micro_dollars,
        "discarded": entry.discarded,
        "at": entry.at,
    }
