"""Reads the members of an untrusted zip archive within size limits.

inspect compresses with Zstandard, which Python's `zipfile` supports only from version 3.14. So
`zipfile` reads the archive's index, and zlib or pyarrow's codec decompresses the bytes.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from loopline.bench.errors import DataError

MAX_MEMBERS = 2_000_000
MAX_MEMBER_BYTES = 256 * 2**20
"""Maximum decompressed bytes of one member: a sample of a long agent run has some ten megabytes."""
MAX_TOTAL_BYTES = 64 * 2**30
"""Maximum decompressed bytes of all members read."""
_CHUNK = 2**20
_ZSTANDARD = 93
_LOCAL_HEADER = 30
_ENCRYPTED = 0x1


class Archive:
    """An open archive, as a context manager. Raises DataError if it is damaged or too large."""

    def __init__(self, path: Path, member_bytes: int = MAX_MEMBER_BYTES) -> None:
        self._path = path
        self._member_bytes = member_bytes
        self._left = MAX_TOTAL_BYTES
        self._file = path.open("rb")
        try:
            self._zip = zipfile.ZipFile(self._file)
        except (zipfile.BadZipFile, OSError, ValueError, UnicodeDecodeError) as error:
            self._file.close()
            raise DataError(f"{path}: not a zip archive, or a damaged one ({error})") from error
        except BaseException:
            self._file.close()
            raise
        members = self._zip.infolist()
        if len(members) > MAX_MEMBERS:
            self._file.close()
            raise DataError(
                f"{path}: {len(members):,} members are more than a log of samples has "
                f"({MAX_MEMBERS:,})"
            )
        self._members = {info.filename: info for info in members}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._zip.close()
        self._file.close()

    def names(self, folder: str = "") -> list[str]:
        """Names of members below a folder, in the order of the index."""
        return [name for name in self._members if name.startswith(folder)]

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str) -> bytes:
        """Return a decompressed member. Raises DataError."""
        info = self._members[name]
        if info.flag_bits & _ENCRYPTED:
            raise DataError(f"{self._path}: {name} is encrypted")
        try:
            content = b"".join(self._chunks(info))
        except (OSError, zlib.error, EOFError, pa.ArrowException) as error:
            raise DataError(f"{self._path}: {name} can't be decompressed ({error})") from error
        if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
            raise DataError(f"{self._path}: {name} is damaged: its checksum does not match")
        return content

    def _chunks(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        size = 0
        for chunk in self._decompressed(info):
            size += len(chunk)
            self._left -= len(chunk)
            # Counted during decompression: the index may state a wrong size.
            if size > self._member_bytes:
                raise DataError(
                    f"{self._path}: {info.filename} decompresses to more than "
                    f"{self._member_bytes:,} bytes"
                )
            if self._left < 0:
                raise DataError(
                    f"{self._path}: its members decompress to more than {MAX_TOTAL_BYTES:,} bytes"
                )
            yield chunk

    def _decompressed(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        raw = self._raw(info)
        if info.compress_type == zipfile.ZIP_STORED:
            yield from raw
        elif info.compress_type == zipfile.ZIP_DEFLATED:
            inflater = zlib.decompressobj(-zlib.MAX_WBITS)
            for piece in raw:
                rest = piece
                while rest:
                    yield inflater.decompress(rest, _CHUNK)
                    rest = inflater.unconsumed_tail
            yield inflater.flush()
        elif info.compress_type == _ZSTANDARD:
            source = pa.PythonFile(_Pieces(raw), mode="r")
            with pa.CompressedInputStream(source, "zstd") as stream:
                while chunk := stream.read(_CHUNK):
                    yield chunk
        else:
            raise DataError(
                f"{self._path}: {info.filename} is compressed by method {info.compress_type}, "
                "which this program can't read; inspect writes Deflate and Zstandard"
            )

    def _raw(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the compressed bytes of a member."""
        self._file.seek(info.header_offset)
        head = self._file.read(_LOCAL_HEADER)
        if len(head) < _LOCAL_HEADER or head[:4] != b"PK\x03\x04":
            raise DataError(f"{self._path}: {info.filename} is not where the index says")
        self._file.seek(
            int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), 1
        )
        left = info.compress_size
        while left > 0:
            piece = self._file.read(min(_CHUNK, left))
            if not piece:
                raise EOFError("the file ends within it")
            left -= len(piece)
            yield piece


class _Pieces:
    """Wraps chunks of bytes as a file that pyarrow can read."""

    closed = False

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._rest) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._rest += piece
        end = len(self._rest) if size < 0 else size
        content, self._rest = self._rest[:end], self._rest[end:]
        return content

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True
