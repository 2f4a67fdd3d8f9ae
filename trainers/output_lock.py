"""One training at a time in an output folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from trainers.errors import TrainingError

LOCK = ".lock"


@contextmanager
def locked(output: Path) -> Generator[None]:
    """Make the folder, and keep other commands off it for the time of the block; the kernel gives
    it back if this process is killed. Raises `TrainingError`."""
    output.mkdir(parents=True, exist_ok=True)
    held = os.open(output / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise TrainingError(
            f"{output}: another command is at work on this folder; wait for it, or stop it"
        ) from None
    finally:
        os.close(held)
