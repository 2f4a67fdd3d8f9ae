"""The origin of a benchmark, by which an output directory finds it again if its name is not
enough."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

from loopline.agents.records import Record
from loopline.bench.errors import DataError


class FileStamp(Record):
    """A file of the user as it was when the benchmark began."""

    path: str
    """Absolute: the benchmark may be resumed from another folder."""
    sha256: str
    """Hexadecimal, of the file's bytes."""

    @classmethod
    def of(cls, path: Path) -> Self:
        """Raises DataError where the file can't be read."""
        return cls(path=str(path.absolute()), sha256=_sha256(path))

    @property
    def file(self) -> Path:
        return Path(self.path)

    @property
    def changed(self) -> bool:
        """Whether the file has other bytes now. Raises DataError where it can't be read."""
        return _sha256(self.file) != self.sha256


class Origin(Record):
    """Either `object`, or `data` with or without `scorer`."""

    object: str | None = None
    """`package.module:OBJECT`."""
    data: FileStamp | None = None
    """The file of questions."""
    scorer: FileStamp | None = None
    """The file with the function `score`; without it answers are compared as text."""


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
