"""Records of a recorder's Parquet store, held against their hashes; what can't be read is named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from loopline.agents.records import RECORDS_VERSION, Trajectory
from loopline.workers.store.files import Damaged, Place, parquet_files, read_batches


class Versioned(Protocol):
    """What a row is read as."""

    @property
    def version(self) -> int: ...


T = TypeVar("T", bound=Versioned)

_ROWS = 32
"""That are made objects at a time: they stay in the processor's cache until they are parsed."""

CHANGED = "record that is not what was written: its hash is another"
OTHER_VERSION = "records of another schema version"
NO_RECORD = "no trajectory record"


@dataclass(frozen=True)
class Skipped:
    """Something that was not read."""

    where: str
    """File, and line or place in it."""
    reason: str
    """The same words for the same kind of trouble, so that they can be counted."""
    detail: str = ""


class NoRecords(ValueError):
    """There is no store, or nothing in it."""


def iterate_trajectories(
    store: Path, workflow: str | None, skipped: list[Skipped]
) -> Iterator[Trajectory]:
    """Every recorded run, one after the other, as `iterate_records`."""
    return iterate_records(store, workflow, skipped, parse_whole)


def parse_whole(body: bytes, workflow: str) -> Trajectory:
    """A recorded trajectory, of whatever workflow. Raises ValidationError."""
    return Trajectory.model_validate_json(body)


def iterate_records(
    store: Path, workflow: str | None, skipped: list[Skipped], read: Callable[[bytes, str], T]
) -> Iterator[T]:
    """What `read` makes of each recorded run and its workflow, in the order of the files, with no
    more than a row group of them in memory; of a run that was replayed the newest. What could not
    be read (`read` raises ValidationError) is added to `skipped`. Raises `NoRecords` if there is no
    store."""
    folder = store / "trajectories"
    if not parquet_files(folder):
        raise NoRecords(
            f"{folder} holds no recorded runs (*.parquet): give a deployment's store, for example "
            ".loopline/store, after at least one run has ended"
        )
    newest = _newest_of_several(folder)
    done: set[str] = set()
    columns = ("trajectory", "run_id", "generation", "entry", "workflow")
    for where, (body, run, generation, entry, played) in checked_rows(
        folder, columns, skipped, workflow
    ):
        if run in done or newest.get(run, (generation, entry)) != (generation, entry):
            continue
        try:
            record = read(body, played)
        except ValidationError as error:
            skipped.append(skipped_record(where, body, error))
            continue
        if record.version > RECORDS_VERSION:
            skipped.append(_of_other_version(where, record.version))
            continue
        done.add(run)
        yield record


def _newest_of_several(folder: Path) -> dict[str, tuple[int, str]]:
    """Generation and entry that count, of each run with several rows."""
    import pyarrow as pa
    import pyarrow.compute

    def column(*names: str) -> Any:
        batches = [batch for _, _, batch in read_batches(folder, names, [])]
        return pa.concat_tables(batches, promote_options="permissive") if batches else None

    compute: Any = pyarrow.compute
    ids = column("run_id")
    if ids is None:
        return {}
    # On one thread: a table of a million groups for each, and their union, takes three times as
    # long.
    counts: Any = ids.group_by("run_id", use_threads=False).aggregate([([], "count_all")])
    several = counts.filter(compute.greater(counts["count_all"], 1))["run_id"]
    if not len(several):
        return {}
    keys = column("run_id", "generation", "entry")
    rows: list[dict[str, Any]] = keys.filter(
        compute.is_in(keys["run_id"], several.combine_chunks())
    ).to_pylist()
    newest: dict[str, tuple[int, str]] = {}
    for row in sorted(rows, key=lambda row: (row["generation"], Place.of(row["entry"]))):
        newest[row["run_id"]] = row["generation"], row["entry"]
    return newest


def checked_rows(
    folder: Path,
    columns: tuple[str, ...],
    skipped: list[Skipped],
    workflow: str | None = None,
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the place of each row of a table, with these columns. The first column is the record
    that the row's hash is of, in UTF-8. Files that can't be read and rows that were changed are
    skipped.

    A row comes twice where it stands twice, or where a compaction ends meanwhile.
    """
    damaged: list[Damaged] = []

    def name_damaged() -> None:
        skipped.extend(
            Skipped(error.path.name, "the file cannot be read", error.why) for error in damaged
        )
        damaged.clear()

    for path, first, group in read_batches(folder, (*columns, "sha256"), damaged, workflow):
        name_damaged()
        for begin in range(0, group.num_rows, _ROWS):
            rows = group.slice(begin, _ROWS)
            # As bytes: its hash is of them, and a parser of JSON takes them, so no text is made.
            bodies = rows[columns[0]].cast("binary").to_pylist()
            values = [rows[name].to_pylist() for name in (*columns[1:], "sha256")]
            for number, (*row, written) in enumerate(zip(bodies, *values, strict=True), begin):
                where = f"{path.name}[{first + number}]"
                if hashlib.sha256(row[0]).hexdigest() != written:
                    skipped.append(Skipped(where, CHANGED))
                else:
                    yield where, tuple(row)
    name_damaged()


def skipped_record(where: str, row: str | bytes, error: ValidationError) -> Skipped:
    """A newer writer's record, or a broken one."""
    try:
        version = json.loads(row)["version"]
    except (ValueError, KeyError, TypeError):
        version = RECORDS_VERSION
    if version != RECORDS_VERSION:
        return _of_other_version(where, version)
    place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
    return Skipped(where, NO_RECORD, place)


def _of_other_version(where: str, version: object) -> Skipped:
    detail = f"version {version!s:.20}; this program reads {RECORDS_VERSION}"
    return Skipped(where, OTHER_VERSION, detail)
