"""The origin of a benchmark, by which an output directory finds it if the name is not enough."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

from loopline.agents.records import Record
from loopline.bench.errors import DataError


class FileStamp(Record):
    """A user's file as it was when the benchmark started."""

    path: str
    """Absolute path, since the benchmark may be resumed from another folder."""
    sha256: str
    """SHA-256 of the file's bytes, in hexadecimal."""

    @classmethod
    def of(cls, path: Path) -> Self:
        """Stamp a file. Raises DataError if it can't be read."""
        return cls(path=str(path.absolute()), sha256=_sha256(path))

    @property
    def file(self) -> Path:
        return Path(self.path)

    @property
    def changed(self) -> bool:
        """Whether the file has changed. Raises DataError if it can't be read."""
        return _sha256(self.file) != self.sha256


class Origin(Record):
    """Origin of a benchmark: either `object`, or `data` with or without `scorer`."""

    object: str | None = None
    """Object in the form `package.module:OBJECT`."""
    data: FileStamp | None = None
    """File of questions."""
    scorer: FileStamp | None = None
    """File with the function `score`; without one, answers are compared as text."""


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
