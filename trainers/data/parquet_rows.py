"""Rows of published Parquet files: the readable ones, and a list of the others.

A damaged row affects only itself, a damaged file only the rows after the damage. A split of a data
set is often divided into files, `train-00000-of-00039-e991a271dbfa9925.parquet`: a missing one is
reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from loopline.trainers.data.json_files import Reading, Skipped, Unreadable

T = TypeVar("T")

MAX_ROW_BYTES = 256 * 2**20
_SHARD = re.compile(r"(?P<split>.+)-(?P<at>\d{5})-of-(?P<total>\d{5})(-[0-9a-f]+)?\.parquet")


def read_rows(path: Path, columns: Sequence[str], build: Callable[[int, Any], T]) -> Reading[T]:
    """Convert each row to a record by `build(number, row)`, which may raise `Unreadable`, from
    those of the `columns` that the file has. Rows count from 0; other columns are not read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    records: list[T] = []
    skipped: list[Skipped] = []
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            names: list[str] = file.schema_arrow.names
            present = [name for name in columns if name in names]
            if not present:
                raise Unreadable(
                    "not the expected fields", f"columns {', '.join(names)}: no {columns[0]}"
                )
            batches: Any = file.iter_batches(batch_size=1, columns=present)
            for batch in batches:
                try:
                    if batch.nbytes > MAX_ROW_BYTES:
                        raise Unreadable("a row is too large", f"more than {MAX_ROW_BYTES:,} bytes")
                    records.append(build(number, _values(batch)))
                except Unreadable as error:
                    skipped.append(error.at(f"{path.name}[{number}]"))
                number += 1
    except Unreadable as error:
        skipped.append(error.at(path.name))
    except (OSError, pa.ArrowException) as error:
        trouble = Unreadable("the file cannot be read", str(error))
        skipped.append(trouble.at(f"{path.name}[{number}]" if number else path.name))
    return Reading(tuple(records), tuple(skipped), (path.name,))


def read_shards(
    paths: Sequence[Path], columns: Sequence[str], build: Callable[[str, Any], T]
) -> Reading[T]:
    """The files of one split, in the order of their names, with each row converted to a record by
    `build(place, row)`. A place is the number of the file in the split and of the row in the file,
    `0/17`. A missing file is reported among the unread rows."""
    records: list[T] = []
    skipped: list[Skipped] = []
    for path in sorted(paths):
        shard = _number(path)
        read = read_rows(path, columns, lambda row, value, at=shard: build(f"{at}/{row}", value))
        records += read.records
        skipped += read.skipped
    return Reading(
        tuple(records), (*skipped, *_missing(paths)), tuple(path.name for path in sorted(paths))
    )


def _values(batch: Any) -> Any:
    """The one row of a batch. Raises Unreadable."""
    try:
        return batch.to_pylist()[0]
    except UnicodeDecodeError as error:
        raise Unreadable("not UTF-8", error.reason) from error


def _number(path: Path) -> int:
    match = _SHARD.fullmatch(path.name)
    return int(match["at"]) if match else 0


def _missing(paths: Sequence[Path]) -> list[Skipped]:
    shards = [match for path in paths if (match := _SHARD.fullmatch(path.name))]
    if not shards:
        return []
    there = {int(shard["at"]) for shard in shards}
    first = shards[0]
    return [
        Skipped(f"{first['split']}-{at:05d}-of-{first['total']}", "a file of the split is missing")
        for at in range(int(first["total"]))
        if at not in there
    ]
