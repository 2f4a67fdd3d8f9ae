"""A disk that is full in the middle of a file."""

from __future__ import annotations

import resource
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def no_file_larger_than(size: int) -> Generator[None]:
    """For this process: what writes beyond it is refused as by a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
