"""A lock on a file or a folder. When a process dies, however it dies, the kernel releases its lock.
So the lock can't become stale, as a file with a process id could."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class FileLock:
    """An exclusive flock(2) lock: of all processes on this machine and all `FileLock`s, only one
    can have it."""

    def __init__(self, path: Path, mode: int = 0o644) -> None:
        """`path`: an existing folder, or a file, which is created with that mode if missing."""
        self.path = path
        self._mode = mode
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises BlockingIOError at once if another holder has it, and OSError for a
        file that can't be opened."""
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
            # Its holder removed the file between the two calls: the new file may be locked.
            os.close(descriptor)

    def release(self, *, remove: bool = False) -> None:
        """Release the lock, if it is held; with `remove`, delete the file."""
        if self._descriptor is None:
            return
        if remove:
            # Remove it while the lock is held: later, it could be the next holder's file.
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None

    def _open(self) -> int:
        how = os.O_RDONLY if self.path.is_dir() else os.O_RDWR | os.O_CREAT
        return os.open(self.path, how | os.O_CLOEXEC, self._mode)


def is_locked(path: Path) -> bool:
    """Whether any process has a `FileLock` on the file; False if the file is missing. Raises
    OSError. The check itself shares the lock for an instant, during which `acquire` fails."""
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
