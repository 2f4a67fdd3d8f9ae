"""Text and ids of SentencePiece-style tokenizers (Llama 2, TinyLlama, Mistral).

Such a tokenizer writes a blank as `▁`, and text without a matching piece as bytes. It also inserts
its own blank: Llama 2's at the beginning and after each control token, newer ones only at the
beginning. So the ids of a text depend on the text before it, and a piece with a leading blank means
the blank in one place and not in another: the codec must know the preceding token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

BLANK = "▁"

BLANK_AT_BEGINNING_KEY = "loopline.tokenizer.blank_at_beginning"
"""Metadata key of a GGUF file: the tokenizer adds its own blank only at the beginning. llama.cpp
can only express everywhere or nowhere."""

_PRIVATE_USE = range(0xE000, 0xF900)


class SentencePieceCodec:
    """A `TextCodec`. Added tokens, such as `</s>`, are text like any other.

    Text and ids convert exactly, except where the tokenizer itself makes no difference: between `▁`
    and a blank and, for the newer kind, between a text with and without a leading blank.
    """

    def __init__(
        self,
        tokenize: Callable[[str], list[int]],
        pieces: Sequence[bytes],
        added: Collection[int],
        prefixed: Collection[int | None],
    ) -> None:
        """`tokenize` returns the ids of a whole text, including the tokenizer's own blank; `pieces`
        are the bytes of each token, with that blank; `added` are the tokens that are matched before
        a text is split into pieces; the tokenizer inserts its blank after those in `prefixed`
        (None: at the beginning)."""
        self._tokenize = tokenize
        self._pieces = pieces
        self._added = frozenset(added)
        self._prefixed = frozenset(prefixed)
        # No piece contains this character, so nothing after it is merged with text before it.
        joined = b"".join(pieces)
        self._anchor = next(c for c in map(chr, _PRIVATE_USE) if c.encode() not in joined)
        self._anchor_ids = len(tokenize(self._anchor))

    def encode(self, text: str, after: int | None = None) -> list[int]:
        if after in self._prefixed:
            return self._tokenize(text)
        return self._tokenize(self._anchor + text)[self._anchor_ids :]

    def decode(self, ids: Sequence[int], after: int | None = None) -> str:
        """Bytes that are not a character become replacement characters."""
        output = bytearray()
        for token in ids:
            piece = self._pieces[token]
            has_extra_blank = (
                piece[:1] == b" " and after in self._prefixed and token not in self._added
            )
            output += piece[1:] if has_extra_blank else piece
            after = token
        return output.decode(errors="replace")
