"""Text and ids of a `tokenizer.json`, through the package tokenizers, without a model. Also text in
Unicode's composed form (NFC), for tokenizers that use it.

Qwen's tokenizers compose their input: `e` followed by an accent becomes `é`. llama.cpp does not,
and would return other ids. The GGUF files of this project state whether their tokenizer composes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from loopline.workers.engines.local.model_files import unusable_error
from loopline.workers.engines.text.chat_prompt import TextCodec
from loopline.workers.engines.text.sentencepiece import BLANK, SentencePieceCodec

_BYTE = re.compile(r"^<0x([0-9A-F]{2})>$")
"""A token for a single byte."""

COMPOSED_KEY = "loopline.tokenizer.nfc"
"""Metadata key of a GGUF file: the tokenizer composes text before it splits it."""


class TokenizerCodec:
    """A `TextCodec` over a byte-level tokenizer: special tokens are text like any other."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._texts: dict[int, str] = {}
        """Texts of tokens that were decoded alone, as streams decode each token."""

    @property
    def joins(self) -> bool:
        """Whether the joined texts of single tokens equal the text of all tokens: streams rely on
        it."""
        ids = self.encode("The answer is 7.")
        return "".join(self.decode([token_id]) for token_id in ids) == self.decode(ids)

    def encode(self, text: str, after: int | None = None) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], after: int | None = None) -> str:
        if len(ids) != 1:
            return self._decode(ids)
        text = self._texts.get(ids[0])
        if text is None:
            text = self._texts[ids[0]] = self._decode(ids)
        return text

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._backend.decode(list(ids), skip_special_tokens=False))


def make_codec(backend: Any, width: int, model: str) -> TextCodec:
    """Build the codec for `model`, whose logits have this width. `backend` is a Tokenizer of the
    tokenizers package. Raises EngineError `bad_request` for a tokenizer whose text would not be
    exact."""
    if getattr(backend.model, "byte_fallback", False):
        codec: TextCodec = _sentencepiece_codec(backend, width, model)
    else:
        codec = TokenizerCodec(backend)
        if not codec.joins:
            raise unusable_error(
                model,
                "its tokenizer decodes a token differently alone and after another one, and has no "
                "byte fallback (SentencePiece without it); this engine needs one with byte "
                "fallback, such as Llama 2's, or a byte-level one, such as Qwen's or Llama 3's",
            )
    return codec


def _sentencepiece_codec(backend: Any, width: int, model: str) -> SentencePieceCodec:
    added: dict[int, Any] = backend.get_added_tokens_decoder()
    vocabulary: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    pieces = [b""] * max(width, *(token_id + 1 for token_id in vocabulary.values()))
    missing = 256
    for text, token in vocabulary.items():
        byte = _BYTE.match(text)
        if token in added:
            pieces[token] = text.encode()
        elif byte is not None:
            pieces[token] = bytes.fromhex(byte[1])
            missing -= 1
        else:
            pieces[token] = text.replace(BLANK, " ").encode()
    if missing:
        raise unusable_error(
            model, f"its tokenizer falls back to bytes, but has no tokens for {missing} of them"
        )

    def tokenize(text: str) -> list[int]:
        return list(backend.encode(text, add_special_tokens=False).ids)

    before: dict[int | None, str] = {None: "", **{k: str(v.content) for k, v in added.items()}}
    prefixed = [
        token
        for token, text in before.items()
        if pieces[tokenize(f"{text}a")[1 if text else 0]].startswith(b" ")
    ]
    return SentencePieceCodec(tokenize, pieces, added, prefixed)


@dataclass(frozen=True)
class ComposedCodec:
    """A `TextCodec` that composes the text between added tokens. Added tokens are matched first,
    the longest where several start: an accent after a token is not part of it."""

    codec: TextCodec
    added: re.Pattern[str]

    def encode(self, text: str, after: int | None = None) -> list[int]:
        if not unicodedata.is_normalized("NFC", text):
            parts = self.added.split(text)
            # Added tokens are at the odd positions.
            parts[::2] = [unicodedata.normalize("NFC", part) for part in parts[::2]]
            text = "".join(parts)
        return self.codec.encode(text, after)

    def decode(self, ids: Sequence[int], after: int | None = None) -> str:
        return self.codec.decode(ids, after)


def compose_codec(codec: TextCodec, added: Collection[str]) -> ComposedCodec:
    """`added` are the texts of the tokens that are matched before a text is split."""
    longest_first = sorted(filter(None, added), key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first)) or r"(?!)"
    return ComposedCodec(codec, re.compile(f"({pattern})"))
