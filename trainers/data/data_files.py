"""Data files that a command refers to: on this machine, or in a data set on the Hub (`hf://…`).

Rows are in JSON lines, plain or compressed, or in Parquet: the extension decides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator

from loopline.trainers.data.hub import fetch, is_on_hub
from loopline.trainers.data.json_files import SUFFIXES, USUAL, Limits, Reading, read_lines
from loopline.trainers.data.parquet_rows import read_rows
from loopline.trainers.errors import UnreadableData

PARQUET = ".parquet"
LINES = tuple(f".jsonl{suffix}" for suffix in SUFFIXES)
ROWS = (*LINES, PARQUET)

T = TypeVar("T")

DataFile = Annotated[
    str, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)
]
"""The type of an option that refers to such a file. The file is fetched when it is read, not
before."""


def local_file(target: str, endings: Sequence[str] = ROWS) -> Path:
    """Path of the file on this machine. A file of the Hub is fetched, and must have one of these
    extensions. Raises `UnreadableData` for a file that can't be fetched."""
    return fetch(target, endings) if is_on_hub(target) else Path(target)


def read_records(path: Path, build: Callable[[int, Any], T], limits: Limits = USUAL) -> Reading[T]:
    """Convert each row to a record by `build(number, value)`, which may raise `Unreadable`. Lines
    count from 1, rows of Parquet from 0. Raises `UnreadableData` for an invalid Parquet file."""
    if path.suffix != PARQUET:
        return read_lines(path, build, limits)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = list(pq.read_schema(path).names)
    except (OSError, pa.ArrowException) as error:
        raise UnreadableData(f"{path}: not a Parquet file, or a damaged one ({error})") from error
    # Dates and similar types become text, since JSON has no such types.
    return read_rows(
        path, columns, lambda number, row: build(number, json.loads(json.dumps(row, default=str)))
    )
