"""A file that somebody else wrote, read up to a limit: a huge one is not read to its end."""

from __future__ import annotations

from pathlib import Path


class FileTooLarge(ValueError):
    """The file has more bytes than may be read."""


def read_bounded_file(path: Path, limit: int) -> bytes:
    """The whole file. Raises OSError, and `FileTooLarge` for one with more than `limit` bytes."""
    with path.open("rb") as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise FileTooLarge(f"{path} has more than {limit:,} bytes")
    return raw
