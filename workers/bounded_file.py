"""Reads an untrusted file up to a size limit, so that a huge file is never read to its end."""

from __future__ import annotations

from pathlib import Path


class FileTooLarge(ValueError):
    """The file is larger than the limit."""


def read_bounded_file(path: Path, limit: int) -> bytes:
    """The whole file. Raises OSError, and `FileTooLarge` for a file of more than `limit` bytes."""
    with path.open("rb") as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise FileTooLarge(f"{path} has more than {limit:,} bytes")
    return raw
