"""Rouge-L: how much of two texts is one common subsequence of words (Lin, 2004, section 3).

    P = LCS / words of the prediction,  R = LCS / words of the reference,  F = 2PR / (P + R)

Words are as in the `rouge-score` package without stemming: runs of a–z and 0–9, lower case. The
package itself is held against this in the tests; it needs nltk, and quadratic time in Python.
"""

from __future__ import annotations

import re
from collections import defaultdict

MAX_CHARS = 200_000
"""Most characters of either text; a longer one is cut there."""

_WORD = re.compile(r"[a-z0-9]+")


def rouge_l(prediction: str, reference: str) -> float:
    """Return the F-measure, in 0…1. Texts without a word score 0."""
    prediction_words, wanted = _words(prediction), _words(reference)
    if not prediction_words or not wanted:
        return 0.0
    common = common_subsequence(prediction_words, wanted)
    if not common:
        return 0.0
    precision, recall = common / len(prediction_words), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def common_subsequence(first: list[str], second: list[str]) -> int:
    """The length of the longest common subsequence.

    Bit-parallel (Hyyrö, 2004): bit i of `row` is clear where the table's row grows at word i of
    `second`, so a whole row is three operations on long integers.
    """
    places: defaultdict[str, int] = defaultdict(int)
    for at, word in enumerate(second):
        places[word] |= 1 << at
    full = (1 << len(second)) - 1
    row = full
    for word in first:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & full
    return len(second) - row.bit_count()


def _words(text: str) -> list[str]:
    return _WORD.findall(text[:MAX_CHARS].lower())
