"""A disk that is full, said so that the user knows what to do."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from loopline.trainers.errors import NotEnoughDisk


@contextmanager
def guard_disk_writes(path: Path) -> Generator[None]:
    """The block writes `path`. Raises `NotEnoughDisk` where that is refused, by a disk that is
    full or is not to be written on."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NotEnoughDisk(
            f"{path} can't be written ({why}): free some space, then go on with the same command"
        ) from error
