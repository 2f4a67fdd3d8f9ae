"""Verifies every byte of a store: damaged files are set aside, changed rows are reported."""

# pyarrow has no type stubs.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from loopline.workers.atomic_files import write_atomic
from loopline.workers.store.compaction import Stop, compaction_lock, set_aside
from loopline.workers.store.files import (
    TABLES,
    Damaged,
    FileName,
    open_parquet,
    parquet_files,
    read_group,
)
from loopline.workers.store.samples import FOLDER, check_samples

_BODIES = {"trajectories": "trajectory", "rewards": "reward"}
"""Column with the record whose hash is in the column `sha256`."""
PROGRESS = "verified.json"
"""Files that an interrupted verification has read; the next one continues after them."""
_SAVED_EVERY = 50


@dataclass
class Verified:
    """Findings in a whole store."""

    files: int = 0
    rows: int = 0
    damaged: list[str] = field(default_factory=list[str])
    """Files that were set aside, with the reason, and damaged samples that were removed: the next
    compaction writes those again."""
    changed: list[str] = field(default_factory=list[str])
    """Rows whose record was changed: they stay, and readers skip them."""
    complete: bool = True
    """False if the verification was stopped."""

    @property
    def sound(self) -> bool:
        return not self.damaged and not self.changed


def verify(
    store: Path,
    *,
    stop: Stop = lambda: False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verified:
    """Read all files of all tables. A damaged one goes to `unreadable/`, and its readable rows stay
    in the table. Raises `AlreadyCompacting` and OSError."""
    result = Verified()
    with compaction_lock(store) as scratch:
        remembered = _Progress(store / PROGRESS)
        paths = [path for table in TABLES for path in parquet_files(store / table)]
        for number, path in enumerate(paths):
            on_progress(number, len(paths))
            if stop():
                result.complete = False
                remembered.save()
                return result
            if remembered.has(path):
                continue
            try:
                rows = _read(path, result)
            except Damaged as error:
                set_aside(path.parent, path, scratch)
                result.damaged.append(f"{path.parent.name}/{path.name}: {error.why}")
            except FileNotFoundError:
                continue  # A recorder has set it aside.
            else:
                result.files += 1
                result.rows += rows
                remembered.add(path)
        for path in parquet_files(store / FOLDER):
            try:
                check_samples(path)
            except Damaged as error:
                path.unlink()
                result.damaged.append(f"{FOLDER}/{path.name}: {error.why}")
        on_progress(len(paths), len(paths))
        remembered.remove()
    return result


def _read(path: Path, result: Verified) -> int:
    file = open_parquet(path, checked=True)
    first = 0
    changed: list[str] = []
    for group in range(file.metadata.num_row_groups):
        table = read_group(path, file, group)
        body = _BODIES.get(path.parent.name)
        if body in table.column_names and "sha256" in table.column_names:
            pairs = zip(table[body].to_pylist(), table["sha256"].to_pylist(), strict=True)
            changed += [
                f"{path.parent.name}/{path.name}[{first + number}]"
                for number, (text, written) in enumerate(pairs)
                if text is None or hashlib.sha256(text.encode()).hexdigest() != written
            ]
        first += table.num_rows
    name = FileName.parse(path.name)
    if name is not None and name.rows != first:
        raise Damaged(path, f"its name states {name.rows} rows, but it has {first}")
    result.changed += changed
    return first


class _Progress:
    """Progress of a verification: size and time of each file, so that a changed file is read
    again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, list[int]] = {}
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError, AttributeError):
            self._files = dict(orjson.loads(path.read_bytes()).items())
        self._unsaved = 0

    def has(self, path: Path) -> bool:
        return self._files.get(_key(path)) == _stamp(path)

    def add(self, path: Path) -> None:
        self._files[_key(path)] = _stamp(path)
        self._unsaved += 1
        if self._unsaved >= _SAVED_EVERY:
            self.save()

    def save(self) -> None:
        write_atomic(self._path, orjson.dumps(self._files))
        self._unsaved = 0

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def _key(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _stamp(path: Path) -> list[int]:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return []
    return [stat.st_size, stat.st_mtime_ns]


def summary(store: Path) -> dict[str, Any]:
    """Contents of each table: files, rows, bytes, first and last entry in Unix seconds, and files
    that were set aside."""
    tables: dict[str, Any] = {}
    for table in TABLES:
        names: list[FileName] = []
        size = others = 0
        for path in parquet_files(store / table):
            with contextlib.suppress(FileNotFoundError):
                size += path.stat().st_size
                name = FileName.parse(path.name)
                if name is None:
                    others += 1
                else:
                    names.append(name)
        tables[table] = {
            "files": len(names),
            "other_files": others,
            "rows": sum(name.rows for name in names),
            "bytes": size,
            "smallest_rows": min((name.rows for name in names), default=0),
            "first": min((name.first.milliseconds for name in names), default=0) / 1000 or None,
            "last": max((name.last.milliseconds for name in names), default=0) / 1000 or None,
        }
    unreadable = store / "unreadable"
    samples = parquet_files(store / FOLDER)
    return {
        "store": str(store),
        "tables": tables,
        "samples": {
            "files": len(samples),
            "bytes": sum(path.stat().st_size for path in samples),
        },
        "unreadable": sorted(path.name for path in unreadable.iterdir())
        if unreadable.is_dir()
        else [],
    }
