"""Turns on one GPU: servers have it together until a training wants it, then the training has it
alone.

Two files of this user on this machine stand for a GPU. A server shares the lock on `NAME.turn`
while it has memory there. A training locks `NAME.wanted`, which servers look at, and then waits
until nobody shares `NAME.turn`. The kernel takes both locks back when a process dies, however it
dies: no turn outlives who had it.
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
    taken its place."""
    folder = Path(tempfile.gettempdir()) / f"loopline-gpu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else: remove it, or set TMPDIR")
    return folder


class _Lock:
    """flock(2) on a file, shared or not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, how: int) -> bool:
        """Whether it could be taken, at once."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
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
        """`name`: of the GPU. Raises OSError."""
        folder = turns_folder()
        self._turn = _Lock(folder / f"{name}.turn")
        self._wanted = _Lock(folder / f"{name}.wanted")

    def is_wanted(self) -> bool:
        """Whether a training has the GPU, or waits for it."""
        free = self._wanted.take(fcntl.LOCK_SH)
        self._wanted.close()
        return not free

    def take(self) -> bool:
        """Whether the server may have memory there now; else a training has its turn."""
        return not self.is_wanted() and self._turn.take(fcntl.LOCK_SH)

    def give(self) -> None:
        """The server has no memory there any more."""
        self._turn.close()


@contextmanager
def training_turn(
    name: str | None, raise_if_stopped: Callable[[], None] = lambda: None
) -> Generator[float]:
    """The block has the GPU of this name alone; it is given the seconds that it waited. None: no
    GPU is shared. `raise_if_stopped` is called while it waits. Raises OSError."""
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
