"""Decompresses answers piece by piece, so that a few bytes can't expand to gigabytes.

We never ask for compression, but some servers use it anyway.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

PIECE_BYTES = 1 << 16

_WINDOW = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_UNREADABLE = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz"})


class BadCoding(ValueError):
    """An answer that can't be decompressed, and why."""


class Unpacker:
    """Decompresses data in the coding that a `Content-Encoding` header names.

    A value that is not a known coding (`UTF-8`, `none`) is considered a mistake: the data is not
    compressed.
    """

    def __init__(self, header: str) -> None:
        """Raises `BadCoding` for a coding that can't be read here."""
        codings = [part.strip().lower() for part in header.split(",")]
        packed = [coding for coding in codings if coding in _WINDOW or coding in _UNREADABLE]
        if len(packed) > 1 or any(coding in _UNREADABLE for coding in packed):
            raise BadCoding(f"the answer has the encoding {header[:64]!r}, which was not requested")
        self._coding = packed[0] if packed else ""
        self._stream = zlib.decompressobj(_WINDOW[self._coding]) if packed else None
        self._begun = False
        self._whole = True

    def pieces(self, packed: bytes) -> Iterator[bytes]:
        """Decompress some more bytes, at most `PIECE_BYTES` at a time. A caller that has enough
        stops iterating. Raises `BadCoding` for damaged data."""
        if self._stream is None:
            yield packed
            return
        while packed:
            begun, self._begun = self._begun, True
            try:
                piece = self._stream.decompress(packed, PIECE_BYTES)
            except zlib.error as error:
                if begun and self._whole:
                    return  # padding after the last part
                if begun or self._coding != "deflate":
                    raise BadCoding(f"the answer's {self._coding} is damaged: {error}") from error
                # By the standard, deflate has a zlib header; many servers omit it.
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
                continue
            self._whole = self._stream.eof
            packed = self._stream.unconsumed_tail
            if self._whole:
                packed = self._stream.unused_data
                self._stream = zlib.decompressobj(_WINDOW[self._coding])
            yield piece

    def end(self) -> None:
        """Check that the data is complete. Raises `BadCoding` if something is missing."""
        if self._begun and not self._whole:
            raise BadCoding(f"the answer's {self._coding} ends too early")
