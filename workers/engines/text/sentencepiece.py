"""Text and ids of tokenizers of SentencePiece's style (Llama 2, TinyLlama, Mistral).

Such a tokenizer writes a blank as `▁` and whatever it has no piece for as bytes. In front of a text
it puts a blank of its own: Llama 2's at the beginning and after each control token, newer ones at
the beginning alone. So the ids of a text do not begin like those of the same text after another,
and a piece with a blank in front means the blank in one place and not in the other: the text before
it has to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

BLANK = "▁"

BLANK_AT_BEGINNING_KEY = "loopline.tokenizer.blank_at_beginning"
"""Metadata key of a GGUF file: the tokenizer adds its own blank at the beginning alone. llama.cpp
knows only everywhere and nowhere."""

_PRIVATE_USE = range(0xE000, 0xF900)


class SentencePieceCodec:
    """A `TextCodec`. Added tokens, such as `</s>`, are text like any other.

    Text and ids belong to each other exactly, but for what the tokenizer itself does not tell
    apart: `▁` and a blank, and with the newer kind a text with and without a blank at its
    beginning.
    """

    def __init__(
        self,
        tokenize: Callable[[str], list[int]],
        pieces: Sequence[bytes],
        added: Collection[int],
        prefixed: Collection[int | None],
    ) -> None:
        """`tokenize` gives the ids of a whole text, the tokenizer's own blank included; `pieces`
        are the bytes of each token, with that blank; `added` are the tokens that are looked for in
        a text before it is cut into pieces; after those in `prefixed` (None: at the beginning) the
        tokenizer puts its blank."""
        self._tokenize = tokenize
        self._pieces = pieces
        self._added = frozenset(added)
        self._prefixed = frozenset(prefixed)
        # No piece has this character, so nothing after it is joined with what comes before.
        joined = b"".join(pieces)
        self._anchor = next(c for c in map(chr, _PRIVATE_USE) if c.encode() not in joined)
        self._anchor_ids = len(tokenize(self._anchor))

    def encode(self, text: str, after: int | None = None) -> list[int]:
        if after in self._prefixed:
            return self._tokenize(text)
        return self._tokenize(self._anchor + text)[self._anchor_ids :]

    def decode(self, ids: Sequence[int], after: int | None = None) -> str:
        """Bytes that are not a character come out as replacement characters."""
        output = bytearray()
        for token in ids:
            piece = self._pieces[token]
            has_extra_blank = (
                piece[:1] == b" " and after in self._prefixed and token not in self._added
            )
            output += piece[1:] if has_extra_blank else piece
            after = token
        return output.decode(errors="replace")
