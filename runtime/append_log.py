"""An append-only file of JSON lines that survives kill -9.

Each line is written by one `write` and ends with a newline. A process that dies during the write
leaves a last line without a newline: `open` drops that line and reports it, because its writer
never got a confirmation. Any other unreadable line is damage that must not be overlooked: it raises
an error with the file and the line. The caller chooses the type of the error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

Failure = Callable[[str], Exception]
"""Builds the error to raise from a description of the fault."""


class AppendLog:
    """A log with one writer at a time, which the output directory's lock ensures."""

    def __init__(self, path: Path, *, resume: str, failure: Failure) -> None:
        """Create a log. `resume`: the command to run once there is space again."""
        self.path = path
        self._resume = resume
        self._failure = failure
        self.notice: str | None = None
        """Describes what `open` dropped; None if the file was whole."""
        self._descriptor: int | None = None

    def open(self) -> Self:
        """Open the file for appending, after dropping a torn last line."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        torn = _torn_bytes(self.path)
        if torn:
            whole = self.path.stat().st_size - torn
            os.ftruncate(descriptor, whole)
            os.fsync(descriptor)
            self.notice = (
                f"{self.path}: the last line was torn ({torn} bytes, the writer died); dropped it"
            )
        self._descriptor = descriptor
        return self

    def append(self, record: Mapping[str, Any], *, sync: bool = False) -> None:
        """Append a record; with `sync`, return once it is on disk. Raises `failure`."""
        if self._descriptor is None:
            raise ValueError(f"{self.path} is not open")
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        try:
            whole = os.fstat(self._descriptor).st_size
            written = os.write(self._descriptor, line)
            if written != len(line):
                # Otherwise the next record would be appended to this partial line.
                os.ftruncate(self._descriptor, whole)
                raise OSError(f"{written} of {len(line)} bytes were written")
        except OSError as error:
            raise self._write_error(error) from error
        if sync:
            self.sync()

    def sync(self) -> None:
        """Return once everything appended so far is on disk. Raises `failure`."""
        if self._descriptor is None:
            return
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._write_error(error) from error

    def _write_error(self, error: OSError) -> Exception:
        return self._failure(
            f"{self.path}: cannot be written ({error.strerror or error}); free some space, "
            f"then resume with: {self._resume}"
        )

    def close(self) -> None:
        """Close the file; reading stays possible."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self if self._descriptor is not None else self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


def read_log(path: Path, failure: Failure) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line number and record of every whole line; nothing for a missing file. A torn last
    line is skipped (`torn_notice` describes it). Raises `failure` for any other line that is not a
    JSON object.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                return
            try:
                record = json.loads(raw)
            except ValueError as error:
                raise failure(damaged_line_message(path, number, str(error))) from error
            if not isinstance(record, dict):
                raise failure(damaged_line_message(path, number, "not a JSON object"))
            yield number, record


def damaged_line_message(path: Path, number: int, why: str) -> str:
    """Return the error message for a damaged line that is not the torn last line."""
    return (
        f"{path}:{number}: the line is damaged ({why}), and not by a crash, which truncates only "
        "the last line; restore the file from a copy, or remove this line and lose its record"
    )


def torn_notice(path: Path) -> str | None:
    """Describe what a reader skips at the end of the file; None if the file is whole."""
    torn = _torn_bytes(path) if path.is_file() else 0
    return f"{path}: skipped a torn last line of {torn} bytes" if torn else None


def _torn_bytes(path: Path) -> int:
    """Count the bytes after the last newline."""
    size = path.stat().st_size
    with path.open("rb") as file:
        end = size
        while end > 0:
            start = max(0, end - 65_536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return size - (start + newline + 1)
            end = start
    return size
