"""A lock on a file or a folder. The kernel releases it when its process dies, however it dies, so
it can't become stale as a file with a process id could."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class FileLock:
    """An exclusive lock by flock(2): of all processes on this machine, and of all `FileLock`s, one
    holds it."""

    def __init__(self, path: Path, mode: int = 0o644) -> None:
        """`path`: a folder that is there, or a file, which is made with that mode if missing."""
        self.path = path
        self._mode = mode
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises BlockingIOError at once where another one holds it, and OSError
        for a file that can't be opened."""
        while True:
            descriptor = self._open()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(descriptor, self.path):
                    self._descriptor = descriptor
                    return
            except BaseException:
                os.close(descriptor)
                raise
            # Its holder removed the file between the two: another one may hold the new file.
            os.close(descriptor)

    def release(self, *, remove: bool = False) -> None:
        """Release it; with `remove` the file is deleted. Does nothing if it is not held."""
        if self._descriptor is None:
            return
        if remove:
            # While it is held: removed afterwards, it could be the file of the next holder.
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None

    def _open(self) -> int:
        how = os.O_RDONLY if self.path.is_dir() else os.O_RDWR | os.O_CREAT
        return os.open(self.path, how | os.O_CLOEXEC, self._mode)


def is_locked(path: Path) -> bool:
    """Whether somebody holds a `FileLock` on the file; False for a file that is missing. Raises
    OSError.

    The look shares the lock for an instant, in which `acquire` finds it taken.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
