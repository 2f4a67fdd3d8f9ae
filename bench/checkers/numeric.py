"""The primary checker: the last `\\boxed{}`, else the last number, compared as an exact number.

A box wins over everything after it ("\\boxed{21} years old in 3 years" is 21). A box that holds
nothing, or only a placeholder, is not an answer: the next box before it counts, or the text. A
box that holds words, an unfinished expression or several values *is* an answer, but not a number.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from bench.checkers.numbers import Number, clean, find_numbers, last_number


@dataclass(frozen=True)
class Extraction:
    """What a prediction answers."""

    number: Number | None
    where: Literal["box", "text", "none"]
    shown: str
    """The answer as it was written, for people; empty when there is none."""


# A backspace stands for JSON that was unescaped once too often ("\\boxed" read as "\\b" + "oxed").
_BOX = re.compile(r"(?:\\(?:boxed|fbox)|\x08oxed|(?<![A-Za-z\\])boxed)\s{0,3}")
_BARE = re.compile(r"-?\$?[0-9][0-9,]{0,40}(?:\.[0-9]{1,40})?")
_PLACEHOLDER = re.compile(
    r"(?:[\s$_.…?\-~#]|\\(?:ldots|dots|cdots|square|boxed|phantom|quad)(?![A-Za-z])|[{}]"
    r"|(?:your|the|final|numeric(?:al)?|numerical|answer|result|value|number|here)\b)*",
    re.IGNORECASE,
)
_SPACED_THOUSANDS = re.compile(r"(?<![0-9.,])([0-9]{1,3}(?: [0-9]{3})+)(?![0-9])")
_LEADING_MINUS = re.compile(r"^\s*-\s+")
_OPERATOR = re.compile(r"[+*×÷^√/]|\\[A-Za-z]")
# A slash of a unit is no calculation: "km/h", "g/ml", "$5/hour". Single letters are variables but
# for these few, and behind a bare number a slash divides.
_PER = re.compile(
    r"(?:(?<=[A-Za-z]{2})\s?/\s?(?=[A-Za-z])|(?:(?<=[A-Za-z])\s?|(?<=\$)\s{0,3})/\s?(?=[A-Za-z]{2})"
    r"|(?<=\b[mglL])\s?/\s?(?=[smhlL]\b))(?!\s?[xyz]\b)"
)
_VARIABLE = re.compile(r"\s?[xyz]\b")
_PREPOSITION = re.compile(
    r"\b(?:in|per|for|after|of|over|from|every|each|on|at|by|within|during|with|among|between)\b",
    re.IGNORECASE,
)
MAX_BOXES = 50
"""How many boxes from the end are looked at for one that holds something."""

MAX_BOX = 2_000
"""Characters of a box that are read; a longer one is no answer to a word problem."""


def extract(prediction: str) -> Extraction:
    """The answer of a prediction. Never raises, whatever the text is."""
    for content in _boxes_from_the_end(prediction):
        if _PLACEHOLDER.fullmatch(content):
            continue
        return Extraction(_number_of_box(content), "box", " ".join(content.split()))
    number = last_number(clean(prediction))
    if number is None:
        return Extraction(None, "none", "")
    return Extraction(number, "text", number.text.strip())


def check(prediction: str, gold: str) -> bool:
    """Whether the prediction answers the gold number. Raises ValueError when gold is none."""
    number = extract(prediction).number
    return number is not None and bool(number.readings & gold_readings(gold))


def check_extracted(extraction: Extraction, gold: str) -> bool:
    """`check` for a prediction whose answer is already extracted."""
    number = extraction.number
    return number is not None and bool(number.readings & gold_readings(gold))


def gold_readings(gold: str) -> frozenset[Fraction]:
    """What a reference answer stands for. GSM8K's whole solution is understood as well."""
    number = last_number(clean(final_part(gold)))
    if number is None or number.value is None:
        raise ValueError(f"the gold answer {gold[:80]!r} is not a number")
    return number.readings


def final_part(gold: str) -> str:
    """The text after `####` where there is one: GSM8K's way to end a solution."""
    return gold.rpartition("####")[2].strip()


def every_box(text: str) -> list[str]:
    """The contents of the last boxes of a text, the one that begins last first."""
    return list(_boxes_from_the_end(text))


def _boxes_from_the_end(text: str) -> Iterator[str]:
    """The contents of the boxes, the one that begins last first."""
    for match in reversed(deque(_BOX.finditer(text), maxlen=MAX_BOXES)):
        at = match.end()
        if text[at : at + 1] == "{":
            yield _balanced(text, at)
        elif text[match.start()] == "\\":
            bare = _BARE.match(text, at)
            if bare:
                yield bare[0]


def _balanced(text: str, opening: int) -> str:
    """The text inside the brace at `opening`; up to the end of the line if it never closes."""
    depth = 0
    limit = min(len(text), opening + MAX_BOX)
    at = opening
    while at < limit:
        character = text[at]
        if character == "\\":
            at += 2
            continue
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return text[opening + 1 : at]
        at += 1
    return text[opening + 1 : limit].partition("\n")[0]


def _number_of_box(content: str) -> Number | None:
    cleaned = clean(content)
    cleaned = _SPACED_THOUSANDS.sub(lambda m: m[1].replace(" ", ""), cleaned)
    head, equals, tail = re.sub("≈", "=", cleaned).rpartition("=")
    tail, head = _LEADING_MINUS.sub("-", tail), _LEADING_MINUS.sub("-", head)
    part = tail if equals and find_numbers(tail) else (head.rpartition("=")[2] if equals else tail)
    numbers = find_numbers(part)
    if not numbers:
        return None
    first = numbers[0]
    if len(numbers) == 1:
        rest = _PER.sub(" ", f"{part[: first.start]} {part[first.end :]}")
        unfinished = _OPERATOR.search(rest) or _VARIABLE.match(part, first.end)
        return None if unfinished else first
    second = numbers[1]
    between = part[first.end : second.start]
    leads = not part[: first.start].strip(" $-+*(")
    if leads and re.match(r"\s?[A-Za-z]", between) and _PREPOSITION.search(between):
        return first
    return None
