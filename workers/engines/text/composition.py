"""Text in Unicode's composed form (NFC), for tokenizers that read it so.

Qwen's tokenizers compose what they read: `e` and an accent behind it become `é`. llama.cpp does
not, and would give other ids. A GGUF file of ours says which kind its tokenizer is of.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from loopline.workers.engines.text.chat_prompt import TextCodec

COMPOSED_KEY = "loopline.tokenizer.nfc"
"""In the metadata of a GGUF file: the tokenizer composes text before it cuts it."""


@dataclass(frozen=True)
class ComposedCodec:
    """A `TextCodec` that composes what stands between added tokens. These are looked for first,
    the longest where several begin: an accent behind a token is no part of it."""

    codec: TextCodec
    added: re.Pattern[str]

    def encode(self, text: str, after: int | None = None) -> list[int]:
        if not unicodedata.is_normalized("NFC", text):
            parts = self.added.split(text)
            # Added tokens stand at the odd places.
            parts[::2] = [unicodedata.normalize("NFC", part) for part in parts[::2]]
            text = "".join(parts)
        return self.codec.encode(text, after)

    def decode(self, ids: Sequence[int], after: int | None = None) -> str:
        return self.codec.decode(ids, after)


def composed(codec: TextCodec, added: Collection[str]) -> ComposedCodec:
    """`added` are the texts of the tokens that are looked for in a text before it is cut."""
    longest_first = sorted(filter(None, added), key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first)) or r"(?!)"
    return ComposedCodec(codec, re.compile(f"({pattern})"))
