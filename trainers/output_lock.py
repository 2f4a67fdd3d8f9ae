"""One training at a time in an output folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from loopline.trainers.errors import TrainingError

LOCK = ".lock"


def make_folder(output: Path) -> None:
    """Raises `TrainingError` where there can't be one."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(
            f"{output} can't be made a folder ({error.strerror}): name another one"
        ) from error


@contextmanager
def locked(output: Path) -> Generator[None]:
    """Make the folder, and keep other commands off it for the time of the block; the kernel gives
    it back if this process is killed. Raises `TrainingError`."""
    make_folder(output)
    path = output / LOCK
    held = _taken(path)
    try:
        yield
    finally:
        # While it is held: a folder that was refused is left as it was.
        path.unlink(missing_ok=True)
        os.close(held)


def _taken(path: Path) -> int:
    """The descriptor of the file, which nobody else holds."""
    while True:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(held, path):
                return held
        except BlockingIOError:
            os.close(held)
            raise TrainingError(
                f"{path.parent}: another command is at work on this folder; wait for it, or stop it"
            ) from None
        # It was removed by who held it, between the two: another one may hold its successor.
        os.close(held)


def _is_at(held: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(held), path.stat())
    except FileNotFoundError:
        return False
