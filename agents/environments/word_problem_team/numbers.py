"""The numbers in a text: as digits, or as words of the generated problems (`twelve`, `half`,
`doubles`). A word that is only sometimes a number (`one of them`) counts as one: the reader must
decide."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from loopline.agents.environments.word_problems.words import NUMBER_WORDS

_WORDS: dict[str, int] = {
    **{word: value for value, word in enumerate(NUMBER_WORDS)},
    "half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fifth": 5,
    "fifths": 5, "once": 1, "twice": 2, "double": 2, "doubles": 2, "doubled": 2, "triple": 3,
    "triples": 3, "tripled": 3, "quadruple": 4, "quadruples": 4, "quadrupled": 4,
}  # fmt: skip
WORDS = tuple(_WORDS)
_NUMBER = re.compile(rf"(?<![\w.])(?:\d{{1,5}}|(?i:{'|'.join(_WORDS)}))(?![\w])(?!\.\d)")
MOST_NAMES = 16


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text, with its name: `n1` is the first."""

    name: str
    value: int
    start: int


@lru_cache(maxsize=4096)
def numbers_of(text: str) -> tuple[Number, ...]:
    """Return the first `MOST_NAMES` numbers, in order."""
    numbers: list[Number] = []
    for match in _NUMBER.finditer(text):
        word = match[0].lower()
        value = int(word) if word.isdigit() else _WORDS[word]
        numbers.append(Number(f"n{len(numbers) + 1}", value, match.start()))
        if len(numbers) == MOST_NAMES:
            break
    return tuple(numbers)


def name_numbers(text: str) -> str:
    """Return the text with its name before every number: `Ada has n1=6 boxes`."""
    for number in reversed(numbers_of(text)):
        text = f"{text[: number.start]}{number.name}={text[number.start :]}"
    return text
