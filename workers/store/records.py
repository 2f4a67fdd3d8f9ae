"""Reads the records of a recorder's store, checks their hashes, and reports unreadable ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from loopline.agents.records import RECORDS_VERSION, Trajectory
from loopline.workers.store.files import Damaged, parquet_files, read_batches, read_files
from loopline.workers.store.repeated_runs import newest_of_several
from loopline.workers.store.samples import BODIES, KEYS, SampleGroup, sample_groups


class Versioned(Protocol):
    """A parsed row."""

    @property
    def version(self) -> int: ...


T = TypeVar("T", bound=Versioned)

_ROWS = 32
"""Rows that are converted at a time: they stay in the processor's cache until they are parsed."""

CHANGED = "record that was changed after it was written: its hash differs"
OTHER_VERSION = "records of another schema version"
NO_RECORD = "no trajectory record"


@dataclass(frozen=True)
class Skipped:
    """A record or file that was not read."""

    where: str
    """File, and line or position in it."""
    reason: str
    """Reason in fixed words per kind of error, so that equal ones can be counted."""
    detail: str = ""


class NoRecords(ValueError):
    """The store does not exist, or is empty."""


def has_records(store: Path) -> bool:
    """Whether any run has been recorded."""
    return bool(parquet_files(store / "trajectories"))


def iterate_trajectories(
    store: Path, workflow: str | None, skipped: list[Skipped]
) -> Iterator[Trajectory]:
    """Every recorded run in turn, as `iterate_records`."""
    return iterate_records(store, workflow, skipped, parse_whole)


def parse_whole(body: bytes, workflow: str) -> Trajectory:
    """A recorded trajectory of any workflow. Raises ValidationError."""
    return Trajectory.model_validate_json(body)


def iterate_records(
    store: Path,
    workflow: str | None,
    skipped: list[Skipped],
    read: Callable[[bytes, str], T],
    unpack: Callable[[bytes], T] | None = None,
) -> Iterator[T]:
    """The result of `read` for each recorded run and its workflow, in file order, with at most one
    row group in memory. Only the newest row of a replayed run is read. Records that could not be
    read (`read` raises ValidationError) are added to `skipped`. With `unpack`, a run is read from
    its sample if it has one (`loopline.workers.store.samples`). Raises `NoRecords` if there is no
    store."""
    folder = store / "trajectories"
    if not has_records(store):
        raise NoRecords(
            f"{folder} holds no recorded runs (*.parquet): give a deployment's store, for example "
            ".loopline/store, after at least one run has ended"
        )
    newest = newest_of_several(folder)
    done: set[str] = set()
    damaged: list[Damaged] = []
    for group in _groups(folder, damaged, workflow, with_samples=unpack is not None):
        _name_damaged(damaged, skipped)
        bodies = _checked_bodies(group, skipped)
        keys = zip(*(group.rows[name].to_pylist() for name in KEYS), strict=True)
        for number, (run, generation, entry, played) in enumerate(keys):
            sample = None if group.samples is None else group.samples[number]
            body = None if sample is not None else next(bodies)
            if run in done or newest.get(run, (generation, entry)) != (generation, entry):
                continue
            if sample is not None and unpack is not None:
                record = unpack(sample)
            elif body is None:
                continue
            else:
                try:
                    record = read(body, played)
                except ValidationError as error:
                    skipped.append(skipped_record(_place(group, number), body, error))
                    continue
            if record.version > RECORDS_VERSION:
                skipped.append(_of_other_version(_place(group, number), record.version))
                continue
            done.add(run)
            yield record
    _name_damaged(damaged, skipped)


def _groups(
    folder: Path, damaged: list[Damaged], workflow: str | None, *, with_samples: bool
) -> Iterator[SampleGroup]:
    if with_samples:
        yield from read_files(folder, lambda path: sample_groups(path, damaged, workflow), damaged)
        return
    for path, first, rows in read_batches(folder, (*KEYS, *BODIES), damaged, workflow):
        yield SampleGroup(path, first, rows, None)


def _place(group: SampleGroup, number: int) -> str:
    return f"{group.path.name}[{group.first + number}]"


def _checked_bodies(group: SampleGroup, skipped: list[Skipped]) -> Iterator[bytes | None]:
    """The record of each row that has no sample; None in place of a changed record."""
    samples = group.samples
    if samples is not None and None not in samples:
        return
    for begin in range(0, group.rows.num_rows, _ROWS):
        rows = group.rows.slice(begin, _ROWS)
        # As bytes: they are hashed, and the JSON parser takes them, so no text is created.
        bodies = rows["trajectory"].cast("binary").to_pylist()
        written = rows["sha256"].to_pylist()
        for number, (body, digest) in enumerate(zip(bodies, written, strict=True), begin):
            if samples is not None and samples[number] is not None:
                continue
            if hashlib.sha256(body).hexdigest() == digest:
                yield body
            else:
                skipped.append(Skipped(_place(group, number), CHANGED))
                yield None


def _name_damaged(damaged: list[Damaged], skipped: list[Skipped]) -> None:
    skipped.extend(
        Skipped(error.path.name, "the file cannot be read", error.why) for error in damaged
    )
    damaged.clear()


def checked_rows(
    folder: Path, columns: tuple[str, ...], skipped: list[Skipped]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the position of each row of a table, with these columns. The row's hash is that of the
    first column, the record, in UTF-8. Unreadable files and changed rows are skipped.

    A row occurs twice if it is stored twice, or if a compaction finishes meanwhile.
    """
    damaged: list[Damaged] = []
    for path, first, group in read_batches(folder, (*columns, "sha256"), damaged):
        _name_damaged(damaged, skipped)
        for begin in range(0, group.num_rows, _ROWS):
            rows = group.slice(begin, _ROWS)
            bodies = rows[columns[0]].cast("binary").to_pylist()
            values = [rows[name].to_pylist() for name in (*columns[1:], "sha256")]
            for number, (*row, written) in enumerate(zip(bodies, *values, strict=True), begin):
                where = f"{path.name}[{first + number}]"
                if hashlib.sha256(row[0]).hexdigest() != written:
                    skipped.append(Skipped(where, CHANGED))
                else:
                    yield where, tuple(row)
    _name_damaged(damaged, skipped)


def skipped_record(where: str, row: str | bytes, error: ValidationError) -> Skipped:
    """The reason for skipping a record: it is from a newer writer, or broken."""
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
