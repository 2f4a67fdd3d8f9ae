"""Files and folders that are there whole, or not at all, whenever a process or the machine dies.

Each is written under another name alongside its own, flushed to the disk and renamed. That name
holds the writer's process id, so two processes may write the same file: the last one holds.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil

PARTIAL = ".part"
"""Suffix of the hidden file or folder that is still being written: `.NAME.PID.part`."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2
"""Flags of renameat2(2) on Linux and of renamex_np(2) on macOS."""


def write_atomic(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a file, text as UTF-8, so that a reader, or a crash, sees the old one or the new one.

    A `private` one has the mode 0600 from its first byte on. Raises OSError.
    """
    with atomic_file(path, private=private) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_file(path: Path, *, private: bool = False) -> Generator[Path]:
    """The path of a file for the block to write, which takes the name `path` at the end; after an
    error nothing of it is left. Raises OSError."""
    partial = _partial(path)
    try:
        if private:
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT, 0o600))
        yield partial
        flush(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    flush(path.parent)


@contextmanager
def atomic_folder(folder: Path, *, replace: bool = False) -> Generator[Path]:
    """An empty folder to write into, which takes its name at the end; after an error nothing of it
    is left, and what killed processes left of earlier ones is removed.

    With `replace` a folder of that name gives way; a crash in that instant leaves neither. Raises
    OSError, also where without `replace` one that isn't empty has the name by then.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder)
    partial = _partial(folder)
    partial.mkdir()
    try:
        yield partial
        flush_all(partial)
        if replace:
            shutil.rmtree(folder, ignore_errors=True)
        elif folder.is_dir():
            folder.rmdir()
        partial.rename(folder)
        flush(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def exchange(first: Path, second: Path) -> None:
    """Give two files or folders each other's name in one step, so that anyone who looks sees both
    as they were or both exchanged. Flushes neither.

    Raises OSError; with `errno.ENOTSUP` where the system or its file system has no such step.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(first), os.fsencode(second)
    if sys.platform == "darwin":
        swap = getattr(libc, "renamex_np", None)
        arguments = (*paths, ctypes.c_uint(_RENAME_SWAP))
    else:
        swap = getattr(libc, "renameat2", None)
        arguments = (_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], ctypes.c_uint(_RENAME_EXCHANGE))
    if swap is None:
        number = errno.ENOTSUP
    elif swap(*arguments) == 0:
        return
    else:
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
            number = errno.ENOTSUP
    raise OSError(number, os.strerror(number), str(first), None, str(second))


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


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")


def _remove_leftovers(folder: Path) -> None:
    """Folders can be large, so what a killed process left of one must not stay for ever. One of
    our own process id was left by a dead process as well."""
    for leftover in folder.parent.glob(f".{glob.escape(folder.name)}.*{PARTIAL}"):
        pid = leftover.name.split(".")[-2]
        if pid.isdecimal() and (int(pid) == os.getpid() or not psutil.pid_exists(int(pid))):
            shutil.rmtree(leftover, ignore_errors=True)
