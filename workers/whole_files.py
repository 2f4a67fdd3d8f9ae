"""Files and folders that are there whole, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one. Raises
    OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    flush(path.parent)


@contextmanager
def whole_folder(folder: Path) -> Generator[Path]:
    """An empty folder to write into, which takes its name at the end; after an error nothing of it
    is left. Raises OSError, also where another folder that isn't empty has that name by then."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        yield part
        flush_all(part)
        if folder.is_dir():
            folder.rmdir()
        part.rename(folder)
        flush(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def flush_all(folder: Path) -> None:
    """The folder and all that is in it: see `flush`. Raises OSError."""
    for path in (*folder.rglob("*"), folder):
        flush(path)


def flush(path: Path) -> None:
    """A file, or the names in a folder, onto the disk: what was renamed before it is safe could be
    found empty after a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
