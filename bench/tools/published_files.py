"""Published tool-use data below a folder: each file is read by the reader that recognizes it. Files
are recognized by name, ToolBench's by their folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from loopline.bench.checkers.apibench import ApiDatabase
from loopline.bench.datasets import apibench, bfcl, toolalpaca
from loopline.bench.datasets.location import plain_or_compressed
from loopline.trainers.data import toolbench
from loopline.trainers.data.json_files import SUFFIXES, Reading, Skipped
from loopline.trainers.data.sources import TEST_QUERIES, held_out_queries
from loopline.trainers.errors import UnreadableData


@dataclass(frozen=True)
class ReadResult:
    """A reader's result for a file, or for a folder of files."""

    where: str
    """Path relative to the searched folder."""
    reader: str
    files: int
    records: int
    skipped: tuple[Skipped, ...]
    unusable: tuple[Skipped, ...]
    """Records that are readable but can't be used."""


@dataclass(frozen=True)
class FolderContents:
    """Content of a folder."""

    read: tuple[ReadResult, ...]
    unknown: tuple[str, ...]
    """Files that no reader recognizes."""


@dataclass(frozen=True)
class _Task:
    """A reader and the files that it recognizes."""

    reader: str
    path: Path
    files: tuple[Path, ...]
    read: Callable[[], Reading[Any]]
    database_of: apibench.Hub | None = None
    """Hub of the records' APIs."""


def read_all(
    folder: Path, on_progress: Callable[[int, int], None] = lambda count, of: None
) -> FolderContents:
    """Return every file below a folder, sorted by name."""
    tasks = sorted(_tasks(folder), key=lambda task: task.path)
    read: list[ReadResult] = []
    for task in tasks:
        on_progress(len(read), len(tasks))
        reading, hub = task.read(), task.database_of
        read.append(
            ReadResult(
                where=task.path.relative_to(folder).as_posix(),
                reader=task.reader,
                files=len(task.files),
                records=len(reading.records),
                skipped=reading.skipped,
                unusable=() if hub is None else ApiDatabase(hub, reading.records).unusable,
            )
        )
    task_files = {path for task in tasks for path in task.files}
    others = sorted(path for path in _files(folder) if path not in task_files)
    return FolderContents(
        tuple(read), tuple(path.relative_to(folder).as_posix() for path in others)
    )


def _tasks(folder: Path) -> Iterator[_Task]:
    for at, below, _ in os.walk(folder):
        here = Path(at)
        part = next((part for part in _TOOLBENCH if f"/{here.as_posix()}".endswith(f"/{part}")), "")
        if part:
            files = tuple(path for path in _files(here) if _is_json(path))
            if files:
                reader, read = _TOOLBENCH[part]
                root = here.parents[part.count("/")]
                yield _Task(f"ToolBench, {reader}", here, files, partial(read, root))
            below.clear()
        elif here.name != bfcl.POSSIBLE_ANSWERS:
            yield from _by_name(here)


def _by_name(folder: Path) -> Iterator[_Task]:
    for category in bfcl.CATEGORIES:
        name = bfcl.file_of(category)
        questions_file = plain_or_compressed(folder, name)
        if questions_file is not None:
            possible = plain_or_compressed(folder / bfcl.POSSIBLE_ANSWERS, name)
            files = (questions_file,) if possible is None else (questions_file, possible)
            read = partial(bfcl.read, category, questions_file, possible)
            yield _Task(f"BFCL, {category}", questions_file, files, read)
    for hub in apibench.HUBS:
        for split in apibench.SPLITS:
            path = plain_or_compressed(folder, apibench.file_of(hub, split))
            if path is not None:
                read = partial(apibench.read, path, hub, split)
                yield _Task(f"APIBench, {hub}, {split}", path, (path,), read)
        path = plain_or_compressed(folder, apibench.DATABASES[hub])
        if path is not None:
            read = partial(apibench.read_apis, path)
            yield _Task(f"APIBench, {hub}, APIs", path, (path,), read, database_of=hub)
    for evaluation, file in toolalpaca.FILES.items():
        path = plain_or_compressed(folder, file)
        if path is not None:
            reader = "ToolAlpaca" if evaluation == "simulated" else f"ToolAlpaca, {evaluation}"
            yield _Task(reader, path, (path,), partial(toolalpaca.read, path))


def _held_out(folder: Path) -> Reading[str]:
    try:
        return Reading(tuple(sorted(held_out_queries(folder))), ())
    except UnreadableData as error:
        return Reading((), (Skipped(TEST_QUERIES, "not a list of query ids", str(error)),))


_TOOLBENCH: dict[str, tuple[str, Callable[[Path], Reading[Any]]]] = {
    "answer": ("answers", toolbench.read_answers),
    "instruction": ("queries", toolbench.read_queries),
    toolbench.TOOLS: ("tools", toolbench.read_tools),
    toolbench.RESPONSES: ("responses", toolbench.read_responses),
    TEST_QUERIES: ("ids of test queries", _held_out),
}
"""Reader by the end of a folder's path; it gets the folder that contains this one."""


def _files(folder: Path) -> Iterator[Path]:
    return (Path(at) / name for at, _, names in os.walk(folder) for name in names)


def _is_json(path: Path) -> bool:
    return path.name.endswith(tuple(f".json{suffix}" for suffix in SUFFIXES))
