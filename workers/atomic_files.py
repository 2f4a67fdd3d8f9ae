"""Atomic files and folders: complete or absent, even if the process or the machine dies.

Each is written under a temporary name in the same folder, flushed to disk and renamed. The
temporary name contains the writer's process id, so two processes may write the same file; the last
one wins.
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
    """Write a file (text as UTF-8) so that readers, even after a crash, see the old or the new one.

    A `private` file has mode 0600 from its first byte on. Raises OSError.
    """
    with atomic_file(path, private=private) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_file(path: Path, *, private: bool = False) -> Generator[Path]:
    """Yield the path of a temporary file for the block to write, which is renamed to `path` at the
    end. After an error the temporary file is removed. Raises OSError."""
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
    """Yield an empty temporary folder to write into, which is renamed to `folder` at the end.

    After an error it is removed, as are leftovers of killed processes. With `replace`, an existing
    folder of that name is removed first; a crash between the two steps leaves neither. Raises
    OSError, also if without `replace` a folder of that name that isn't empty exists by then.
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
    """Swap the names of two files or folders in one step, so that readers see either both as they
    were or both exchanged. Flushes neither.

    Raises OSError; with `errno.ENOTSUP` where the operating system or the file system has no such
    operation.
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
    """Flush the folder and everything in it: see `flush`. Raises OSError."""
    for path in (*folder.rglob("*"), folder):
        flush(path)


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk. A file renamed before it is flushed could be
    empty after a power failure. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary folders of killed processes, since folders can be large. A leftover with our
    own process id also belongs to a dead process."""
    for leftover in folder.parent.glob(f".{glob.escape(folder.name)}.*{PARTIAL}"):
        pid = leftover.name.split(".")[-2]
        if pid.isdecimal() and (int(pid) == os.getpid() or not psutil.pid_exists(int(pid))):
            shutil.rmtree(leftover, ignore_errors=True)
