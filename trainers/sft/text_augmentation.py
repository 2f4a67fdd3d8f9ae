"""Roughens a question: small words fall out, empty ones come in.

A model that reads only whole sentences that it has seen is lost in any other; one that has seen
them a little torn has to hold on to the words that carry the meaning.
"""

from __future__ import annotations

import random

SMALL = frozenset({
    "a", "an", "the", "of", "and", "is", "are", "that", "to", "in", "on", "at", "for", "with",
    "has", "have", "does", "do", "it", "this", "then", "so", "can", "all", "there", "them", "be",
    "was", "will", "she", "he", "her", "his",
})  # fmt: skip
"""Words that may fall out without changing what a question asks."""
EMPTY = ("also", "really", "just", "again", "today", "now", "often", "usually", "carefully")
"""Words that may come in without changing it."""

_DROP = 0.12
_INSERT = 0.03


def perturb_text(text: str, rng: random.Random) -> str:
    """`text` with some small words gone and some empty ones added; numbers are never touched."""
    output_words: list[str] = []
    for word in text.split(" "):
        if word in SMALL and rng.random() < _DROP:
            continue
        if output_words and rng.random() < _INSERT:
            output_words.append(rng.choice(EMPTY))
        output_words.append(word)
    return " ".join(output_words)
