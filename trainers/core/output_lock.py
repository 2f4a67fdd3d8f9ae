"""One training at a time in an output folder."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from loopline.trainers.errors import TrainingError
from loopline.workers.file_lock import FileLock

LOCK = ".lock"


def make_folder(output: Path) -> None:
    """Make a folder. Raises `TrainingError` where there can't be one."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(
            f"{output} can't be made a folder ({error.strerror}): name another one"
        ) from error


@contextmanager
def lock_output(output: Path) -> Generator[None]:
    """Make the folder, and keep other commands off it for the time of the block; the kernel gives
    it back if this process is killed. Raises `TrainingError`."""
    make_folder(output)
    lock = FileLock(output / LOCK)
    try:
        lock.acquire()
    except BlockingIOError:
        raise TrainingError(
            f"{output}: another command is at work on this folder; wait for it, or stop it"
        ) from None
    try:
        yield
    finally:
        # A folder that was refused is left as it was.
        lock.release(remove=True)
