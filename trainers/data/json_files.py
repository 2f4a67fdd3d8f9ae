"""JSON from outside sources: documents and lines, plain or compressed, intact or damaged.

A reader returns the readable records and reports the others: nothing is dropped silently, and a
damaged record affects only itself. Sizes are limited after decompression, so that a small archive
can't expand into all available memory. Lines are read one by one, so that only the resulting
records are in memory.
"""

from __future__ import annotations

import gzip
import json
import lzma
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Generic, TypeVar, cast

from pydantic import BaseModel, ValidationError

from loopline.workers.store.records import Skipped

SUFFIXES = ("", ".xz", ".gz")
MAX_FILE_BYTES = 64 * 2**20
"""Most bytes of one file after decompression, unless a reader sets a higher limit."""
MAX_LINE_BYTES = 2 * 2**20
_CHUNK = 2**16
_SHOWN = 160

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Limits:
    """Limits for a file of lines, in bytes after decompression."""

    file_bytes: int = MAX_FILE_BYTES
    line_bytes: int = MAX_LINE_BYTES


USUAL = Limits()


@dataclass(frozen=True)
class Reading(Generic[T]):
    """The records that were read, and those that could not be read."""

    records: tuple[T, ...]
    skipped: tuple[Skipped, ...]
    files: tuple[str, ...] = ()
    """Names of the files or folders that were read, if a reader selects one of several."""


def summarize_skipped(skipped: Iterable[Skipped], first: int = 3) -> str:
    """Each reason with its count and its first places, the most frequent reason first: `not JSON: 2
    (a.json:7, a.json:9); no chain: 1 (b.json)`."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for entry in skipped:
        places[entry.reason].append(entry.where)
    return "; ".join(
        f"{reason}: {len(locations):,} "
        f"({', '.join(locations[:first])}{', …' if locations[first:] else ''})"
        for reason, locations in sorted(places.items(), key=lambda item: -len(item[1]))
    )


class Unreadable(ValueError):
    """Why a record was not read: a reason that can be counted, and its detail."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail[:_SHOWN]

    def at(self, where: str) -> Skipped:
        """The same as an entry of `Reading.skipped`, with its place."""
        return Skipped(where, self.reason, self.detail)


def read_document(path: Path, max_bytes: int = MAX_FILE_BYTES) -> Any:
    """The one JSON value of a file. Raises `Unreadable`."""
    return parse(_content(path, max_bytes))


def read_lines(path: Path, build: Callable[[int, Any], T], limits: Limits = USUAL) -> Reading[T]:
    """Convert each line to a record by `build(number, value)`, which may raise `Unreadable`.

    Lines count from 1; blank ones are skipped. A truncated file yields its complete lines, and then
    the error with the number of the line where it ends.
    """
    records: list[T] = []
    skipped: list[Skipped] = []
    for number, value in _lines(path, limits):
        try:
            if isinstance(value, Unreadable):
                raise value
            records.append(build(number, value))
        except Unreadable as error:
            skipped.append(error.at(f"{path.name}:{number}"))
    return Reading(tuple(records), tuple(skipped))


def read_list(path: Path, build: Callable[[int, Any], T]) -> Reading[T]:
    """Convert each value of a file that is one JSON list to a record by `build(number, value)`,
    which may raise `Unreadable`. Values count from 0."""
    try:
        rows = read_document(path)
        if not isinstance(rows, list):
            raise Unreadable("not the expected fields", "the file is not a list of problems")
    except Unreadable as error:
        return Reading((), (error.at(path.name),))
    records: list[T] = []
    skipped: list[Skipped] = []
    for number, value in enumerate(cast("list[Any]", rows)):
        try:
            records.append(build(number, value))
        except Unreadable as error:
            skipped.append(error.at(f"{path.name}[{number}]"))
    return Reading(tuple(records), tuple(skipped))


def parse(content: bytes | str, constants: Callable[[str], Any] | None = None) -> Any:
    """Parse a JSON value. Raises `Unreadable`, also for a value that nests too deep or contains a
    number outside a float's range, or NaN or an infinity, unless `constants` returns a substitute
    for these."""
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        return json.loads(text, parse_constant=constants or _refuse, parse_float=_parse_finite)
    except UnicodeDecodeError as error:
        raise Unreadable("not UTF-8", error.reason) from error
    except ValueError as error:
        raise Unreadable("not JSON", str(error)) from error
    except RecursionError as error:
        raise Unreadable("not JSON", "nested too deep") from error


def fit(model: type[M], value: Any) -> M:
    """Validate a value as that model. Raises `Unreadable`, which names the first wrong field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the record"
        raise Unreadable("not the expected fields", f"{place}: {first['msg']}") from error
    except RecursionError as error:
        raise Unreadable("not the expected fields", "nested too deep") from error


def _lines(path: Path, limits: Limits) -> Iterator[tuple[int, Any | Unreadable]]:
    """Each line's number, and its value or why there is none."""
    number = size = 0
    try:
        with _open_file(path) as file:
            while row := file.readline(limits.line_bytes + 1):
                number += 1
                size += len(row)
                too_long = len(row) > limits.line_bytes and not row.endswith(b"\n")
                ended = not too_long
                while not ended and size <= limits.file_bytes:
                    more = file.readline(_CHUNK)
                    size += len(more)
                    ended = not more or more.endswith(b"\n")
                if size > limits.file_bytes:
                    yield number, _too_large(limits.file_bytes)
                    return
                if too_long:
                    limit = f"more than {limits.line_bytes:,} bytes"
                    yield number, Unreadable("a line is too long", limit)
                elif row.strip():
                    yield number, _value(row)
    except _BROKEN as error:
        yield number + 1, _unreadable_file(error)


def _value(row: bytes) -> Any | Unreadable:
    try:
        return parse(row)
    except Unreadable as error:
        return error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _parse_finite(number: str) -> float:
    # If `1e999` were read as infinity, programs that pass it on would write it as null.
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number[:_SHOWN]} is too large for a float")
    return value


def _content(path: Path, max_bytes: int) -> bytes:
    """The decompressed bytes. Raises `Unreadable`."""
    try:
        with _open_file(path) as file:
            content = file.read(max_bytes + 1)
    except _BROKEN as error:
        raise _unreadable_file(error) from error
    if len(content) > max_bytes:
        raise _too_large(max_bytes)
    return content


_BROKEN = (lzma.LZMAError, zlib.error, EOFError, OSError)


def _open_file(path: Path) -> IO[bytes]:
    opener: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    return opener(path, "rb")


def _unreadable_file(error: Exception) -> Unreadable:
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return Unreadable("the file cannot be read", error.strerror or str(error))
    return Unreadable("the file cannot be decompressed", str(error))


def _too_large(max_bytes: int) -> Unreadable:
    return Unreadable("the file is too large", f"more than {max_bytes:,} bytes")
