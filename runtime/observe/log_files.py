"""Log files that are rotated during writing, and a reader that follows them across rotations."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import BinaryIO

LAST_LINES = 20
"""Number of lines kept in memory per worker, for the status of a broken worker."""
MAX_LINE_BYTES = 65_536
"""Maximum bytes of a line: a longer line (a runaway print) is truncated, so that a log can't fill
the supervisor's memory."""


LOG_BYTES = 10_000_000
LOG_FILES = 3
"""Default limits of a log."""


def rotate(path: Path, limit: int = LOG_BYTES, files: int = LOG_FILES) -> bool:
    """Rotate a log that has grown beyond its limit: `name.log` becomes `name.log.1`, and so on. Use
    it for a log that its writer reopens for each line or has not opened yet. Raises OSError."""
    if not path.exists() or path.stat().st_size <= limit:
        return False
    _shift(path, files)
    # Readers look for this name, and the writer may write nothing for hours.
    path.touch()
    return True


def rotate_output(path: Path, limit: int, files: int) -> bool:
    """Rotate, in the same way, the file to which this process's stdout and stderr are appended. No
    output is lost, since each stream switches to the new file in one step. Returns False if the
    streams don't write to this file, as in a terminal. Raises OSError."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    outputs = [number for number in (1, 2) if os.path.samestat(os.fstat(number), there)]
    if not outputs or there.st_size <= limit:
        return False
    new = path.with_name(f".{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _shift(path, files)
        new.replace(path)
        for number in outputs:
            os.dup2(descriptor, number)
    finally:
        os.close(descriptor)
    return True


def _shift(path: Path, files: int) -> None:
    """Free the log's name, so that at most `files` files exist once it is written again."""
    for number in range(files - 1, 0, -1):
        newer = path if number == 1 else _numbered(path, number - 1)
        if newer.exists():
            newer.replace(_numbered(path, number))
    if files == 1:
        path.unlink(missing_ok=True)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


class RotatingLog:
    """`name.log`, `name.log.1`, …: the process's output, at most `files` × `limit` bytes.

    A full disk must not kill the workers: output that can't be written is dropped and counted, and
    the count is written once there is space.
    """

    def __init__(self, path: Path, limit: int, files: int) -> None:
        self.path = path
        self._limit = limit
        self._files = files
        self._handle: FileIO | None = None
        self._size = 0
        self._dropped = 0
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)

    def write(self, line: bytes) -> None:
        self.last_lines.append(line.decode("utf-8", "replace").rstrip("\n"))
        try:
            handle = self._open_file()
            if self._dropped:
                handle.write(b"(%d lines lost: the disk was full)\n" % self._dropped)
                self._dropped = 0
            handle.write(line)
        except OSError:
            self._dropped += 1
            self.close()
            return
        self._size += len(line)
        if self._size >= self._limit:
            self._rotate()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _open_file(self) -> FileIO:
        if self._handle is None:
            # Unbuffered: a failed line must not be written again when the file is closed.
            self._handle = self.path.open("ab", buffering=0)
            self._size = self._handle.tell()
        return self._handle

    def _rotate(self) -> None:
        self.close()
        _shift(self.path, self._files)


async def pump(stream: asyncio.StreamReader, log: RotatingLog) -> None:
    """Copy a child's output into its log, line by line, until the output ends."""
    pending = b""
    try:
        while chunk := await stream.read(MAX_LINE_BYTES):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                log.write(line[:MAX_LINE_BYTES] + b"\n")
            if len(pending) > MAX_LINE_BYTES:
                log.write(pending[:MAX_LINE_BYTES] + b"\n")
                pending = b""
    finally:  # also when the task that waits for the end is cancelled
        if pending:
            log.write(pending + b"\n")


def tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a file without reading the whole file."""
    block = 65_536
    with path.open("rb") as handle:
        end = handle.seek(0, os.SEEK_END)
        data = b""
        while end > 0 and data.count(b"\n") <= lines:
            start = max(0, end - block)
            handle.seek(start)
            data = handle.read(end - start) + data
            end = start
    # Split as bytes: a line of JSON may contain a Unicode line separator such as U+2028.
    last = data.splitlines()[-lines:] if lines else []
    return [line.decode("utf-8", "replace") for line in last]


def last_error_line(lines: Sequence[str]) -> str:
    """Return a worker's final error message including its hint, or else its last line."""
    begin = max((at for at, line in enumerate(lines) if line.startswith("error: ")), default=-1)
    return " ".join(line.strip() for line in lines[begin:])


class Follower:
    """Reads the data that is appended to a file, also across rotations."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: BinaryIO | None = None
        self._inode = 0
        self._pending = b""

    def start_at_end(self) -> None:
        if self._open():
            assert self._handle is not None
            self._handle.seek(0, os.SEEK_END)

    def lines(self) -> Iterator[str]:
        """Yield the whole lines that were added since the last call."""
        if self._handle is None and not self._open():
            return
        yield from self._read()
        try:
            rotated = self._path.stat().st_ino != self._inode
        except FileNotFoundError:
            return
        if rotated:
            yield from self._read()
            self.close()
            self._open()
            yield from self._read()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _open(self) -> bool:
        try:
            self._handle = self._path.open("rb")
        except FileNotFoundError:
            self._handle = None
            return False
        self._inode = os.fstat(self._handle.fileno()).st_ino
        return True

    def _read(self) -> Iterator[str]:
        if self._handle is None:
            return
        *whole, self._pending = (self._pending + self._handle.read()).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
