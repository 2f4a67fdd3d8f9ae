"""Lists the runs of a store, newest first, without reading the others.

The statistics of a row group contain its least and greatest run id. Run ids sort by the time of
admission, so the next runs below an id are in few row groups, and only those are read. The bounds
of a file are read once per process, since a file never changes under its name.
"""

# pyarrow has no type stubs.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from loopline.workers.store.files import (
    Damaged,
    Place,
    open_parquet,
    parquet_files,
    read_group,
    read_metadata,
)

log = structlog.get_logger("loopline.workers.store")

FACTS = (
    "run_id", "generation", "entry", "workflow", "outcome", "created", "ended", "tokens",
    "cost_micro_dollars", "tags",
)  # fmt: skip
TEXTS = ("answer", "reason", "trajectory")


class _Bounds(NamedTuple):
    """Bounds of a row group. Missing bounds admit everything."""

    greatest: str
    least: str
    first: float
    """Unix second in which the earliest of its runs was created."""
    last: float
    path: Path
    group: int


class _Group:
    """An opened row group, whose texts are loaded on first use."""

    def __init__(self, path: Path, number: int) -> None:
        """Raises as `open_parquet`. The file stays open, since a compaction may remove its name."""
        self._path, self._number = path, number
        self._file = open_parquet(path)
        self._texts: Any = None

    def facts(self) -> list[dict[str, Any]]:
        """The `FACTS` of its rows. Raises `Damaged`."""
        return read_group(self._path, self._file, self._number, FACTS).to_pylist()

    def texts(self, row: int) -> dict[str, Any]:
        if self._texts is None:
            table = read_group(self._path, self._file, self._number, TEXTS)
            binary = table.set_column(
                TEXTS.index("trajectory"), "trajectory", table["trajectory"].cast("binary")
            ).combine_chunks()
            self._texts = {name: binary[name].chunk(0) for name in TEXTS}
        values = {name: column[row].as_py() for name, column in self._texts.items()}
        return {**values, "trajectory": values["trajectory"] or b""}


@dataclass(frozen=True)
class NewestRow:
    """The newest row of a run."""

    facts: dict[str, Any]
    """Values of the row's `FACTS`."""
    group: _Group
    number: int

    @property
    def run_id(self) -> str:
        return self.facts["run_id"]

    def texts(self) -> dict[str, Any]:
        """Values of the row's `TEXTS`, `trajectory` as UTF-8. Raises `Damaged`."""
        return self.group.texts(self.number)


@dataclass
class NewestRuns:
    """Runs of one table `trajectories/`, for a process that lists them repeatedly. Not
    thread-safe."""

    folder: Path
    opened: int = 0
    """Number of files whose bounds were read so far."""
    rows_read: int = 0
    """Number of rows whose facts were read so far."""
    _bounds: dict[str, list[_Bounds]] = field(default_factory=dict[str, list[_Bounds]])

    def below(
        self, run_id: str, since: float | None = None, until: float | None = None
    ) -> Iterator[NewestRow]:
        """The runs below an id, in descending order, each once; runs that were created before
        `since` or after `until` (Unix seconds) may be omitted.

        Unreadable data is logged, and left to `runtime store verify`. Raises FileNotFoundError if a
        compaction has replaced a listed file (continue from the last id on), and OSError if the
        system can't read one.
        """
        waiting = [
            bounds
            for bounds in self._all_bounds()
            if bounds.least < run_id
            and (since is None or bounds.last >= since)
            and (until is None or bounds.first <= until)
        ]
        waiting.sort()  # the next one is popped off the end
        ready: list[_Descending] = []
        newest: dict[str, tuple[int, Place, NewestRow]] = {}
        while waiting or ready:
            if waiting and (not ready or waiting[-1].greatest >= ready[0].run_id):
                for row in self._rows(waiting.pop()):
                    if row.run_id >= run_id:
                        continue
                    key = row.facts["generation"], Place.of(row.facts["entry"])
                    if row.run_id not in newest:
                        heapq.heappush(ready, _Descending(row.run_id))
                    elif key < newest[row.run_id][:2]:
                        continue
                    newest[row.run_id] = *key, row
            else:
                yield newest.pop(heapq.heappop(ready).run_id)[2]

    def _all_bounds(self) -> Iterator[_Bounds]:
        files = parquet_files(self.folder)
        for name in self._bounds.keys() - {path.name for path in files}:
            del self._bounds[name]
        for path in files:
            if path.name not in self._bounds:
                try:
                    self._bounds[path.name] = _bounds_of(path)
                except Damaged as error:
                    self._leave_out(error)
                    self._bounds[path.name] = []
                self.opened += 1
            yield from self._bounds[path.name]

    def _rows(self, bounds: _Bounds) -> Iterator[NewestRow]:
        try:
            group = _Group(bounds.path, bounds.group)
            rows = group.facts()
        except Damaged as error:
            self._leave_out(error)
            return
        self.rows_read += len(rows)
        for number, facts in enumerate(rows):
            yield NewestRow(facts, group, number)

    def _leave_out(self, error: Damaged) -> None:
        log.error("a file is left out", file=str(error.path), error=error.why)


class _Descending(NamedTuple):
    """An id in a heap whose first item is the greatest."""

    run_id: str

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return self.run_id > other[0]


def _bounds_of(path: Path) -> list[_Bounds]:
    metadata = read_metadata(path)
    names: list[str] = metadata.schema.names
    places = {name: names.index(name) for name in ("run_id", "created") if name in names}
    bounds: list[_Bounds] = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        least, greatest = _range(group, places.get("run_id"), ("", "\U0010ffff"))
        first, last = _range(group, places.get("created"), (float("-inf"), float("inf")))
        bounds.append(_Bounds(greatest, least, first, last, path, number))
    return bounds


def _range(group: Any, column: int | None, unknown: tuple[Any, Any]) -> tuple[Any, Any]:
    statistics = None if column is None else group.column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return unknown
    try:
        return statistics.min, statistics.max
    except (ValueError, TypeError):  # invalid text, or a type without an order
        return unknown
