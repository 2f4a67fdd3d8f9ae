"""Handmade rows of a table, with only the content that tests of the files need."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from loopline.workers.recorder import Table
from loopline.workers.store.files import parquet_files

SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("entry", pa.string()),
        ("run_id", pa.string()),
        ("generation", pa.int32()),
        ("workflow", pa.string()),
        ("trajectory", pa.string()),
    ]
)


def run_id(number: int) -> str:
    return f"00000000-0000-7000-8000-{number:012d}"


def a_table(store: Path, shard: int = 0) -> Table:
    """A recorder's table whose entries determine their rows."""
    return Table(store / "trajectories", shard, SCHEMA, _row)


def _row(fields: dict[bytes, bytes]) -> dict[str, Any]:
    number, generation = int(fields[b"run"]), int(fields[b"generation"])
    return {
        "run_id": run_id(number),
        "generation": generation,
        "workflow": "pair" if number % 2 else "solo",
        "trajectory": f"{number}/{generation}",
    }


def entry(place: int, number: int, generation: int = 0) -> tuple[str, dict[bytes, bytes]]:
    """Return the entry `place` of the stream: a generation of a run."""
    return f"{place}-0", {b"run": b"%d" % number, b"generation": b"%d" % generation}


def write(store: Path, *entries: tuple[str, dict[bytes, bytes]]) -> None:
    """Write it as one batch of a newly started recorder."""
    asyncio.run(a_table(store).write(entries))


def rows(store: Path) -> list[tuple[str, int, str]]:
    """Return the rows that a plain query sees: run, generation and entry."""
    names = ["run_id", "generation", "entry"]
    tables = [
        pq.read_table(str(path), columns=names) for path in parquet_files(store / "trajectories")
    ]
    return sorted(
        (row["run_id"], row["generation"], row["entry"])
        for table in tables
        for row in table.to_pylist()
    )


def last_recorded(
    entries: Sequence[tuple[str, dict[bytes, bytes]]],
) -> list[tuple[str, int, str]]:
    """Return the rows that a store must contain: the last entry of each run and generation."""
    newest: dict[tuple[str, int], str] = {}
    for place, fields in sorted(entries, key=lambda item: int(item[0].partition("-")[0])):
        newest[run_id(int(fields[b"run"])), int(fields[b"generation"])] = place
    return sorted((run, generation, place) for (run, generation), place in newest.items())
