"""The files of one table: their names, their readable contents, and which of them contain a run."""

# pyarrow has no type stubs.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

TABLES = ("trajectories", "usage", "rewards")
"""Names of the tables: folders of a store."""

_ROWS_AT_A_TIME = 64
T = TypeVar("T")
_FILE_NAME = re.compile(r"([0-9]+)-([0-9]+-[0-9]+)-([0-9]+-[0-9]+)-([0-9]+)\.parquet")


class Place(NamedTuple):
    """Place of an entry in its stream."""

    milliseconds: int
    number: int

    @classmethod
    def of(cls, entry: str) -> Self:
        milliseconds, _, number = entry.partition("-")
        return cls(int(milliseconds), int(number))

    def __str__(self) -> str:
        return f"{self.milliseconds}-{self.number}"


class FileName(NamedTuple):
    """The parts of a table file's name."""

    shard: int
    first: Place
    last: Place
    rows: int

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parse a name; None for a file that no recorder has written."""
        parts = _FILE_NAME.fullmatch(name)
        if parts is None:
            return None
        return cls(int(parts[1]), Place.of(parts[2]), Place.of(parts[3]), int(parts[4]))

    def __str__(self) -> str:
        return f"{self.shard:03d}-{self.first}-{self.last}-{self.rows}.parquet"


def unwritable(folder: Path, error: OSError) -> OSError:
    """The error for a store folder on a disk that refused to write: where, why, and what to do."""
    return OSError(
        error.errno or errno.EIO,
        f"{folder} can't be written to ({error.strerror or error}): free some space or fix its "
        "permissions; until then the batch stays on the bus",
    )


class Damaged(ValueError):
    """A damaged file: its bytes are not the Parquet that was written. Not for unreadable disks."""

    def __init__(self, path: Path, error: BaseException | str) -> None:
        self.path = path
        self.why = " ".join(str(error).split())[:160]
        super().__init__(f"{path} can't be read ({self.why})")


def parquet_files(folder: Path) -> list[Path]:
    """The files of a table, sorted by name; empty if the folder is missing."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    # As a plain query does: a leading dot hides files that are still being written.
    return [folder / name for name in names if name.endswith(".parquet") and name[0] != "."]


def open_parquet(
    path: Path, *, checked: bool = False, metadata: Any = None, one_thread: bool = False
) -> Any:
    """Open a `ParquetFile`. `checked`: verify the checksums of pages that have one. `metadata`: the
    result of `read_metadata`, if available. `one_thread`: no read-ahead threads, for which a reader
    of a few rows would wait.

    Raises `Damaged`, and OSError with its number if the system can't open the file:
    FileNotFoundError if a compaction has replaced it since it was listed.
    """
    try:
        # Not memory-mapped: a failing disk would kill the process instead of raising an error.
        return pq.ParquetFile(
            str(path),
            metadata=metadata,
            pre_buffer=not one_thread,
            page_checksum_verification=checked,
        )
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _as_damage(path, error) from error


def read_group(
    path: Path,
    file: Any,
    group: int,
    columns: Sequence[str] | None = None,
    *,
    one_thread: bool = False,
) -> Any:
    """One row group as a table. Raises as `open_parquet`, and `Damaged` for a missing column."""
    try:
        table: Any = file.read_row_group(
            group, columns=None if columns is None else list(columns), use_threads=not one_thread
        )
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _as_damage(path, error) from error
    if columns is not None:
        missing = set(columns) - set(table.column_names)
        if missing:
            raise Damaged(path, f"it has no column {sorted(missing)[0]!r}")
    return table


def _as_damage(path: Path, error: Exception) -> Exception:
    """Arrow raises OSError both for invalid bytes and for system errors, but only the latter have
    an errno. A feature that Arrow does not implement is not damage."""
    if isinstance(error, pa.ArrowNotImplementedError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return Damaged(path, error)


def read_batches(
    folder: Path, columns: Sequence[str], damaged: list[Damaged], workflow: str | None = None
) -> Iterator[tuple[Path, int, Any]]:
    """A whole table, read as by `read_files` and `batches_of`."""
    return read_files(folder, lambda path: batches_of(path, columns, damaged, workflow), damaged)


def read_files(
    folder: Path, read: Callable[[Path], Iterator[T]], damaged: list[Damaged]
) -> Iterator[T]:
    """The items that `read` yields for each file of a table. Adds unreadable files to `damaged`.

    A compaction that finishes meanwhile replaces listed files. The table is then listed again, and
    rows that were read from the old files are repeated from the new one.
    """
    done: set[str] = set()
    while True:
        files = [path for path in parquet_files(folder) if path.name not in done]
        for path in files:
            try:
                yield from read(path)
            except FileNotFoundError:
                break
            except Damaged as error:
                damaged.append(error)
            done.add(path.name)
        else:
            return


def batches_of(
    path: Path, columns: Sequence[str], damaged: list[Damaged], workflow: str | None
) -> Iterator[tuple[Path, int, Any]]:
    """The row groups of a file, only those of a `workflow` if given: path, number of the group's
    first row in the file, and these columns. An unreadable row group is added to `damaged`. Raises
    as `open_parquet`."""
    file = open_parquet(path)
    first = 0
    wanted = list(columns) if workflow is None else [*columns, "workflow"]
    groups = range(file.metadata.num_row_groups)
    matching = set(
        groups if workflow is None else groups_that_may_hold(file.metadata, "workflow", workflow)
    )
    for group in groups:
        rows: int = file.metadata.row_group(group).num_rows
        if group in matching:
            try:
                table = read_group(path, file, group, wanted)
            except Damaged as error:
                damaged.append(error)
            else:
                if workflow is not None:
                    from pyarrow import compute

                    same: Any = compute
                    table = table.filter(same.equal(table["workflow"], workflow))
                yield path, first, table
        first += rows


def batches_since(
    folder: Path,
    columns: Sequence[str],
    time_column: str,
    since: float,
    done: set[str],
    damaged: list[Damaged],
    workflow: str | None = None,
) -> Iterator[Any]:
    """The row groups, of files that are not `done`, that may contain a row from `since` (Unix
    seconds) on, only of a workflow if given, with these columns and the time column. The names of
    finished files are added to `done`; a file that a compaction replaces meanwhile is found under
    its new name the next time."""
    wanted = (*columns, time_column)
    for path in parquet_files(folder):
        if path.name in done:
            continue
        try:
            file = open_parquet(path)
            recent = _groups_up_to(file.metadata, time_column, since)
            if workflow is not None:
                matching = set(groups_that_may_hold(file.metadata, "workflow", workflow))
                recent = (group for group in recent if group in matching)
            for group in recent:
                yield read_group(path, file, group, wanted)
        except FileNotFoundError:
            continue
        except Damaged as error:
            damaged.append(error)
        done.add(path.name)


def _groups_up_to(metadata: Any, column: str, least: float) -> Iterator[int]:
    """Row groups whose maximum is not below `least`, by their statistics; also those without
    statistics."""
    names: list[str] = metadata.schema.names
    at = names.index(column) if column in names else None
    for group in range(metadata.num_row_groups):
        statistics = None if at is None else metadata.row_group(group).column(at).statistics
        if statistics is None or not statistics.has_min_max or not statistics.max < least:
            yield group


@dataclass
class RunRows:
    """The rows of one run."""

    bodies: list[tuple[int, Place, str]] = field(default_factory=list[tuple[int, Place, str]])
    """Generation, entry, and the trajectory as JSON."""
    damaged: list[Damaged] = field(default_factory=list[Damaged])
    """Files that may have contained other rows of the run."""

    @property
    def newest(self) -> str | None:
        """The trajectory of the greatest generation; if that generation was recorded again, the
        later one."""
        return max(self.bodies)[2] if self.bodies else None


def find_run_rows(folder: Path, run_id: str) -> RunRows:
    """All rows of a run in `trajectories/`. Raises OSError if the system can't read a file."""
    while True:
        rows = RunRows()
        try:
            for path in parquet_files(folder):
                try:
                    _add_rows(path, run_id, rows)
                except Damaged as error:
                    rows.damaged.append(error)
        except FileNotFoundError:
            continue  # A compaction has replaced this file.
        return rows


def _add_rows(path: Path, run_id: str, rows: RunRows) -> None:
    # Most files of a large store do not contain the run: only their metadata is read.
    metadata = read_metadata(path)
    matching = [*groups_that_may_hold(metadata, "run_id", run_id)]
    if not matching:
        return
    file = open_parquet(path, metadata=metadata, one_thread=True)
    for group in matching:
        # Avoids pyarrow's compute functions, whose import takes longer than all of this.
        ids = read_group(path, file, group, ["run_id"], one_thread=True)["run_id"].to_pylist()
        places = [number for number, value in enumerate(ids) if value == run_id]
        for row in _rows_at(path, file, group, places, ["generation", "entry", "trajectory"]):
            place = Place.of(row["entry"])
            rows.bodies.append((row["generation"], place, row["trajectory"]))


def _rows_at(
    path: Path, file: Any, group: int, places: Sequence[int], columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Rows of a row group at ascending places. Rows after the last place are not read. Raises as
    `read_group`."""
    if not places:
        return
    first = 0
    try:
        for batch in file.iter_batches(
            _ROWS_AT_A_TIME, row_groups=[group], columns=list(columns), use_threads=False
        ):
            missing = set(columns) - set(batch.schema.names)
            if missing:
                raise Damaged(path, f"it has no column {sorted(missing)[0]!r}")
            for place in places:
                if first <= place < first + batch.num_rows:
                    yield batch.slice(place - first, 1).to_pylist()[0]
            first += batch.num_rows
            if first > places[-1]:
                return
    except Damaged:
        raise
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _as_damage(path, error) from error


def read_metadata(path: Path) -> Any:
    """Raises as `open_parquet`."""
    try:
        return pq.read_metadata(str(path))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _as_damage(path, error) from error


def groups_that_may_hold(metadata: Any, column: str, value: str) -> Iterator[int]:
    """Return the row groups that may contain the value, by their statistics, which files of earlier
    recorders have, too. All groups if the column is missing: reading it raises the error."""
    names: list[str] = metadata.schema.names
    at = names.index(column) if column in names else None
    for group in range(metadata.num_row_groups):
        if at is None or _may_hold(metadata.row_group(group).column(at).statistics, value):
            yield group


def _may_hold(statistics: Any, value: str) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    try:
        return statistics.min <= value <= statistics.max
    except (pa.ArrowException, UnicodeDecodeError, TypeError):
        return True
