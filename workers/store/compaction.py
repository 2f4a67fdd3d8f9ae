"""Compaction: merges many small files of a table into one, sorted by run.

If it is killed at any point, the table is in its old or its new state, and the next compaction
removes the leftovers next to it. A recorder continues writing meanwhile: only the exchange of the
folders needs the lock under which recorders write. If two processes compact, the second one is
refused.
"""

# pyarrow has no type stubs.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import structlog

from loopline.workers.atomic_files import PARTIAL, exchange, flush
from loopline.workers.file_lock import FileLock
from loopline.workers.store.files import (
    Damaged,
    FileName,
    Place,
    open_parquet,
    parquet_files,
    read_group,
)
from loopline.workers.store.samples import refresh_samples

log = structlog.get_logger("loopline.workers.store")

FULL_BYTES = 256 * 2**20
"""Largest size of a file's rows in memory. A file of at least half this size is never rewritten,
and none is made larger. So a compaction needs about three times this much memory, regardless of the
store's size."""
GROUP_BYTES = 8 * 2**20
"""Size of a row group in memory. Reading one run costs reading one group; smaller groups make
footers long."""
MAX_FILES = 5_000
"""Maximum number of files that one new file replaces."""
LOCK_SECONDS = 10.0
"""Longest wait for a recorder that is writing."""
_LOCK_PAUSE = 0.02
_BODIES = ("trajectory", "reward", "sha256", "answer", "reason")
"""Columns whose statistics and dictionaries would be long but useless."""

pc: Any = pyarrow.compute
"""The module without its stubs, which lack the functions that it creates on import."""

Stop = Callable[[], bool]
RowKey = tuple[str | None, int | None, Place]
"""Run, generation and entry of a row."""


class AlreadyCompacting(RuntimeError):
    """Another process is compacting this store."""


@dataclass
class Compacted:
    """Result of compacting one table."""

    files: int = 0
    """Number of files that were replaced."""
    into: int = 0
    """Number of files that replaced them."""
    rows: int = 0
    duplicates: int = 0
    """Number of duplicate rows that were removed."""
    damaged: tuple[str, ...] = ()
    """Files that were set aside, with the reason."""


@dataclass
class _Sized:
    path: Path
    name: FileName
    weight: int
    """Bytes of its rows in memory, or of the file if it can't be read."""
    identity: tuple[int, int]


@contextmanager
def compaction_lock(store: Path) -> Generator[Path]:
    """The empty folder for new tables, under its lock. Raises `AlreadyCompacting`."""
    folder = store / "compaction"
    folder.mkdir(exist_ok=True)
    lock = FileLock(folder)
    try:
        lock.acquire()
    except BlockingIOError as error:
        raise AlreadyCompacting(f"another process compacts or verifies {store}") from error
    try:
        _empty(folder)  # leftovers of a killed process; exchanged files are no longer in here
        yield folder
        _empty(folder)
    finally:
        lock.release()


def compact(
    table: Path,
    *,
    small: int = 2,
    everything: bool = False,
    stop: Stop = lambda: False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Compacted:
    """Compact one table of a store, if at least `small` files of a shard are small.

    By default, the newest files of similar size are merged, so that a row is only rewritten when
    the table doubles. `everything`: all files that are not full, and those that contain the same
    row of a run. `stop` is called between two steps; finished steps are kept.

    For trajectories, the samples of large files are written, too
    (`loopline.workers.store.samples`).

    Raises `AlreadyCompacting`, and OSError, also if a recorder holds the lock for long or the file
    system can't exchange folders: the table is then unchanged.
    """
    result = Compacted()
    if not table.is_dir():
        return result
    with compaction_lock(table.parent) as scratch:
        groups, outdated = _plan(table, small, everything)
        total, done = sum(map(len, groups)), 0
        on_progress(0, total)
        for group in groups:
            if stop():
                break
            _rewrite(table, group, scratch, result, stop, outdated)
            done += len(group)
            on_progress(done, total)
        if table.name == "trajectories":
            refresh_samples(table, stop)
    return result


def set_aside(table: Path, path: Path, scratch: Path) -> Compacted:
    """Move a damaged file to `unreadable/`, and keep its readable rows in the table. The caller
    holds `compaction_lock`. Raises OSError."""
    result = Compacted()
    sized = _size(path)
    if sized is None:
        with recorders_lock(table):
            keep_unreadable(path, table)
            path.unlink()
        result.damaged = (path.name,)
    else:
        _rewrite(table, [sized], scratch, result, lambda: False, {})
    return result


def _plan(
    table: Path, small: int, everything: bool
) -> tuple[list[list[_Sized]], Mapping[Path, Set[RowKey]]]:
    """Groups of files, each to become one file, the oldest first, and rows to omit."""
    by_shard: dict[int, list[_Sized]] = {}
    for path in parquet_files(table):
        sized = _size(path)
        if sized is not None:
            by_shard.setdefault(sized.name.shard, []).append(sized)
    every = [item for files in by_shard.values() for item in files]
    outdated = _outdated(every) if everything and table.name == "trajectories" else {}
    groups: list[list[_Sized]] = []
    for files in by_shard.values():
        files.sort(key=lambda item: (item.name.first, item.name.last))
        loose = [item for item in files if item.weight < FULL_BYTES // 2]
        if len(loose) >= max(2, small):
            groups += _adjacent(loose) if everything else _of_one_size(loose)
    joined = {item.path for group in groups for item in group}
    groups += [[item] for item in every if item.path in outdated and item.path not in joined]
    return groups, outdated


def _adjacent(files: list[_Sized]) -> list[list[_Sized]]:
    groups: list[list[_Sized]] = [[]]
    weight = 0
    for item in files:
        if groups[-1] and (weight + item.weight > FULL_BYTES or len(groups[-1]) >= MAX_FILES):
            groups.append([])
            weight = 0
        groups[-1].append(item)
        weight += item.weight
    return [group for group in groups if len(group) > 1]


def _of_one_size(files: list[_Sized]) -> list[list[_Sized]]:
    """The newest files, and older ones as long as they are not much larger than all newer ones
    together."""
    begin, weight = len(files), 0
    while begin and (begin == len(files) or files[begin - 1].weight <= 2 * weight):
        begin -= 1
        weight += files[begin].weight
    return _adjacent(files[begin:])


def _outdated(files: Sequence[_Sized]) -> dict[Path, set[RowKey]]:
    """Rows, by file, whose run and generation occur again under a later entry. A server that lost
    its last second in a power failure ends a run again, so its row is recorded again."""
    tables: list[Any] = []
    for number, item in enumerate(files):
        with contextlib.suppress(Damaged, FileNotFoundError):
            file = open_parquet(item.path)
            for group in range(file.metadata.num_row_groups):
                keys = read_group(item.path, file, group, ["run_id", "generation", "entry"])
                place = pa.array([number] * keys.num_rows, pa.int32())
                tables.append(keys.append_column("file", place))
    if not tables:
        return {}
    keys = pa.concat_tables(tables, promote_options="permissive")
    counted = keys.group_by(["run_id", "generation"]).aggregate([("entry", "count")])
    twice = counted.filter(pc.greater(counted["entry_count"], 1)).drop_columns("entry_count")
    rows: dict[tuple[str, int], list[tuple[Place, int]]] = {}
    for row in keys.join(twice, ["run_id", "generation"], join_type="inner").to_pylist():
        key = row["run_id"], row["generation"]
        rows.setdefault(key, []).append((Place.of(row["entry"]), row["file"]))
    outdated: dict[Path, set[RowKey]] = {}
    for key, places in rows.items():
        for place, number in sorted(places)[:-1]:
            outdated.setdefault(files[number].path, set()).add((*key, place))
    return outdated


def _size(path: Path) -> _Sized | None:
    name = FileName.parse(path.name)
    if name is None:
        return None  # Written by another program: its rows must not be moved.
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    weight = stat.st_size
    with contextlib.suppress(Damaged, FileNotFoundError):
        metadata = open_parquet(path).metadata
        groups = range(metadata.num_row_groups)
        weight = sum(metadata.row_group(group).total_byte_size for group in groups)
    return _Sized(path, name, weight, (stat.st_dev, stat.st_ino))


def _rewrite(
    table: Path,
    group: list[_Sized],
    scratch: Path,
    result: Compacted,
    stop: Stop,
    outdated: Mapping[Path, Set[RowKey]],
) -> None:
    """Replace these files by one; damaged ones go to `unreadable/`."""
    parts: list[Any] = []
    aside: dict[str, str] = {}
    for item in group:
        if stop():
            return
        try:
            parts += _readable_groups(item.path, aside)
        except FileNotFoundError:
            return  # Another process has moved it: the next compaction plans without it.
    outdated_rows = {row for item in group for row in outdated.get(item.path, ())}
    rows = _joined(parts, outdated_rows)
    before = sum(part.num_rows for part in parts)
    name = None
    if rows is not None and rows.num_rows:
        places = [Place.of(entry) for entry in rows["entry"].to_pylist()]
        name = str(FileName(group[0].name.shard, min(places), max(places), rows.num_rows))
    replacement = scratch / table.name
    replacement.mkdir()
    try:
        if name is not None:
            write_sorted(rows, replacement / name)
        if not stop() and _exchange(table, replacement, name, group, aside):
            result.files += len(group)
            result.into += name is not None
            result.rows += 0 if rows is None else rows.num_rows
            result.duplicates += before - (0 if rows is None else rows.num_rows)
            damaged = [f"{path}: {why}" for path, why in aside.items()]
            result.damaged += tuple(damaged)
    finally:
        shutil.rmtree(replacement, ignore_errors=True)


def _readable_groups(path: Path, aside: dict[str, str]) -> list[Any]:
    parts: list[Any] = []
    try:
        file = open_parquet(path, checked=True)
    except Damaged as error:
        aside[path.name] = error.why
        return parts
    for number in range(file.metadata.num_row_groups):
        try:
            part = read_group(path, file, number)
            if "entry" not in part.column_names:
                raise Damaged(path, "it has no column 'entry'")
            list(map(Place.of, part["entry"].to_pylist()))
        except (Damaged, ValueError) as error:
            aside[path.name] = error.why if isinstance(error, Damaged) else str(error)
        else:
            parts.append(part)
    return parts


def _joined(parts: list[Any], outdated: Set[RowKey]) -> Any:
    """All rows except the outdated ones, sorted by run, without duplicates; None if there are
    none."""
    if not parts:
        return None
    schema = max((part.schema for part in parts), key=_version_of)
    rows = pa.concat_tables(parts, promote_options="permissive")
    order = [name for name in schema.names if name in rows.column_names]
    order += [name for name in rows.column_names if name not in order]
    rows = rows.select(order).replace_schema_metadata(schema.metadata)
    entries = rows["entry"].to_pylist()
    ids = rows["run_id"].to_pylist() if "run_id" in rows.column_names else [None] * len(entries)
    generations = (
        rows["generation"].to_pylist() if "generation" in rows.column_names else [None] * len(ids)
    )
    newest: dict[tuple[str | None, int | None, Place | None], tuple[Place, int]] = {}
    for number, (entry, run, generation) in enumerate(zip(entries, ids, generations, strict=True)):
        place = Place.of(entry)
        # A run has many rows of usage and rewards; only rows of the same entry are duplicates.
        key = (run, generation, place if generation is None else None)
        if (run, generation, place) in outdated:
            continue
        if key not in newest or newest[key][0] < place:
            newest[key] = place, number
    ordered = sorted((ids[number] or "", place, number) for place, number in newest.values())
    return rows.take(pa.array([number for *_, number in ordered], pa.int64())).combine_chunks()


def _version_of(schema: Any) -> tuple[int, int]:
    """Sort key that prefers the columns of the newest recorder."""
    version = (schema.metadata or {}).get(b"records_version", b"0")
    return (int(version) if version.isdigit() else 0), len(schema.names)


def write_sorted(rows: Any, path: Path) -> None:
    """Write rows, sorted by run, as a compacted file, and flush it. Raises OSError."""
    each_row = max(1, rows.nbytes // rows.num_rows)
    columns: Any = [name for name in rows.column_names if name not in _BODIES]
    with path.open("wb") as file:
        pq.write_table(
            rows,
            file,
            compression="zstd",
            row_group_size=max(1, GROUP_BYTES // each_row),
            use_dictionary=columns,
            write_statistics=columns,
            write_page_checksum=True,
        )
    flush(path)


def _exchange(
    table: Path, replacement: Path, name: str | None, group: list[_Sized], aside: dict[str, str]
) -> bool:
    """Exchange the table's folder with one that contains the new file and all remaining ones.
    Returns False, without any change, if one of the files is missing."""
    gone = {item.path.name for item in group}
    with recorders_lock(table):
        if any(_identity(item.path) != item.identity for item in group):
            return False
        for entry in os.scandir(table):
            if entry.name in gone or entry.name == name or entry.name.endswith(PARTIAL):
                # A partial file was left by a killed recorder: under the lock, none is writing.
                if entry.name == name and entry.name not in gone:
                    return False
                continue
            if entry.is_dir(follow_symlinks=False):
                raise OSError(
                    errno.EISDIR,
                    "a compaction can't keep a folder inside a table: move it away",
                    entry.path,
                )
            os.link(entry.path, replacement / entry.name, follow_symlinks=False)
        for damaged, why in aside.items():
            keep_unreadable(table / damaged, table)
            log.error("damaged file set aside", file=damaged, table=table.name, why=why)
        stat = table.stat()
        replacement.chmod(stat.st_mode & 0o7777)
        if stat.st_uid != os.geteuid():
            os.chown(replacement, stat.st_uid, stat.st_gid)
        flush(replacement)
        try:
            exchange(table, replacement)
        except OSError as error:
            if error.errno == errno.ENOTSUP:
                raise OSError(
                    errno.ENOTSUP,
                    "the file system can't exchange two folders in one step, so a compaction could "
                    "show rows twice; keep the store on ext4, xfs, btrfs, tmpfs or APFS",
                    str(table),
                ) from error
            raise
        flush(table.parent)
        flush(replacement.parent)
        return True


def keep_unreadable(path: Path, table: Path) -> Path:
    """Link a damaged file into `unreadable/` of the store; returns the new path. Raises OSError."""
    folder = table.parent / "unreadable"
    folder.mkdir(exist_ok=True)
    there = folder / f"{table.name}-{path.name}"
    number = 1
    while there.exists() and not there.samefile(path):
        number += 1
        there = folder / f"{table.name}-{path.name}.{number}"
    if not there.exists():
        os.link(path, there)
        flush(folder)
    return there


@contextmanager
def recorders_lock(table: Path) -> Generator[None]:
    lock = FileLock(table)
    give_up = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            lock.acquire()
            break
        except BlockingIOError as error:
            if time.monotonic() > give_up:
                raise BlockingIOError(
                    error.errno,
                    f"a recorder has held the lock for {LOCK_SECONDS:g} s: if it hangs, stop it; "
                    "the table is unchanged",
                    str(table),
                ) from error
            time.sleep(_LOCK_PAUSE)
    try:
        yield
    finally:
        lock.release()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
