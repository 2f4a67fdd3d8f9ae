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
from loopline.workers.store.files import Damaged, parquet_files, read_batches, read_files
from loopline.workers.store.repeated_runs import newest_of_several
from loopline.workers.store.samples import BODIES, KEYS, SampleGroup, sample_groups


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


def has_records(store: Path) -> bool:
    """Whether any run has been recorded."""
    return bool(parquet_files(store / "trajectories"))


def iterate_trajectories(
    store: Path, workflow: str | None, skipped: list[Skipped]
) -> Iterator[Trajectory]:
    """Every recorded run, one after the other, as `iterate_records`."""
    return iterate_records(store, workflow, skipped, parse_whole)


def parse_whole(body: bytes, workflow: str) -> Trajectory:
    """A recorded trajectory, of whatever workflow. Raises ValidationError."""
    return Trajectory.model_validate_json(body)


def iterate_records(
    store: Path,
    workflow: str | None,
    skipped: list[Skipped],
    read: Callable[[bytes, str], T],
    unpack: Callable[[bytes], T] | None = None,
) -> Iterator[T]:
    """What `read` makes of each recorded run and its workflow, in the order of the files, with no
    more than a row group of them in memory; of a run that was replayed the newest. What could not
    be read (`read` raises ValidationError) is added to `skipped`. With `unpack` a run is read from
    its sample, where it has one (`loopline.workers.store.samples`). Raises `NoRecords` if there is
    no store."""
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
    """The record of each row that has no sample; None in place of one that was changed."""
    samples = group.samples
    if samples is not None and None not in samples:
        return
    for begin in range(0, group.rows.num_rows, _ROWS):
        rows = group.rows.slice(begin, _ROWS)
        # As bytes: its hash is of them, and a parser of JSON takes them, so no text is made.
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
    """Yield the place of each row of a table, with these columns. The first column is the record
    that the row's hash is of, in UTF-8. Files that can't be read and rows that were changed are
    skipped.

    A row comes twice where it stands twice, or where a compaction ends meanwhile.
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
