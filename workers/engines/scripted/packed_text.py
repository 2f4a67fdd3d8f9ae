"""Token ids of the scripted engine: each id holds up to three bytes of UTF-8 text.

They are no real tokenizer's ids, but they behave like them where it matters: they decode to the
exact text, a character can lie across two of them, and ids of a text followed by ids of another
are ids of both. The id is `length * 2**24 + bytes`, big-endian; a text of n bytes has about n/3.
"""

from __future__ import annotations

from collections.abc import Sequence

BYTES_PER_TOKEN = 3


class PackedText:
    """A `TextCodec` without a vocabulary file."""

    def encode(self, text: str, after: int | None = None) -> list[int]:
        data = text.encode()
        return [
            (len(chunk) << 24) | int.from_bytes(chunk, "big")
            for chunk in (
                data[start : start + BYTES_PER_TOKEN]
                for start in range(0, len(data), BYTES_PER_TOKEN)
            )
        ]

    def decode(self, ids: Sequence[int], after: int | None = None) -> str:
        """Raises ValueError for a number that is none of this codec's ids."""
        return b"".join(map(_bytes_of, ids)).decode(errors="replace")

    def knows(self, ids: Sequence[int]) -> bool:
        """Whether all of them are ids of this codec."""
        return all(map(_is_id, ids))


def _is_id(token: int) -> bool:
    length = token >> 24
    return 1 <= length <= BYTES_PER_TOKEN and not (token & 0xFFFFFF) >> (8 * length)


def _bytes_of(token: int) -> bytes:
    if not _is_id(token):
        raise ValueError(f"{token} is not a token id of the scripted engine")
    return (token & 0xFFFFFF).to_bytes(token >> 24, "big")
