"""GPU turns: servers share a GPU until a training job wants it exclusively.

Two files represent a GPU for this user on this machine. A server holds a shared lock on `NAME.turn`
while it has GPU memory. A training job locks `NAME.wanted`, which servers poll, and then waits
until no server shares `NAME.turn`. When a process dies, however it dies, the kernel releases both
locks: no turn outlives its process.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

POLL_SECONDS = 0.05


def turns_folder() -> Path:
    """Folder that only this user can read and write. Raises PermissionError if another user has
    created it instead."""
    folder = Path(tempfile.gettempdir()) / f"loopline-gpu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user: remove it, or set TMPDIR")
    return folder


class _Lock:
    """flock(2) on a file, shared or exclusive."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, operation: int) -> bool:
        """Try to take the lock without waiting; returns whether that succeeded."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class ServerTurn:
    """A server's share of a GPU."""

    def __init__(self, name: str) -> None:
        """`name`: the GPU's name. Raises OSError."""
        folder = turns_folder()
        self._turn = _Lock(folder / f"{name}.turn")
        self._wanted = _Lock(folder / f"{name}.wanted")

    def is_wanted(self) -> bool:
        """Whether a training job has the GPU or waits for it."""
        free = self._wanted.take(fcntl.LOCK_SH)
        self._wanted.close()
        return not free

    def take(self) -> bool:
        """Take a share of the GPU; returns False if a training job has or wants it."""
        return not self.is_wanted() and self._turn.take(fcntl.LOCK_SH)

    def give(self) -> None:
        """Give up the share, after the server has freed its GPU memory."""
        self._turn.close()


@contextmanager
def training_turn(
    name: str | None, raise_if_stopped: Callable[[], None] = lambda: None
) -> Generator[float]:
    """Give the block exclusive use of the named GPU; yields the seconds that it waited. If the name
    is None, no GPU is shared. `raise_if_stopped` is called during the wait. Raises OSError."""
    if name is None:
        yield 0.0
        return
    folder, began = turns_folder(), time.monotonic()
    locks = [_Lock(folder / f"{name}.wanted"), _Lock(folder / f"{name}.turn")]
    try:
        for lock in locks:
            while not lock.take(fcntl.LOCK_EX):
                raise_if_stopped()
                time.sleep(POLL_SECONDS)
        yield time.monotonic() - began
    finally:
        for lock in reversed(locks):
            lock.close()
