"""The primary checker: compares the answer that a text states (`statements`) as an exact number, or
as an expression if the gold answer is not a number.

A box wins over everything after it ("\\boxed{21} years old in 3 years" is 21). An empty box, or a
box with only a placeholder, is not an answer: the previous box counts, or else the text. A box with
words, an unfinished expression or several values *is* an answer, but not a number.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from loopline.agents.stated_answers import boxed_answers, statements
from loopline.bench.checkers.number_words import leading_number
from loopline.bench.checkers.numbers import (
    RELATION,
    SUM_OF_UNKNOWNS,
    Number,
    clean,
    find_numbers,
    last_number,
)
from loopline.workers.judging.units import same_measure, unit_of

__all__ = [
    "Extraction", "boxed_answers", "check", "extract", "final_part", "gold_number", "matches_gold",
]  # fmt: skip


@dataclass(frozen=True)
class Extraction:
    """Answer that a prediction states."""

    number: Number | None
    where: Literal["box", "text", "none"]
    text: str
    """The answer as written, for people; empty if there is none."""
    expression: str
    """The answer in the form compared with a gold answer that is not a number; empty if there is
    none."""


_SPACED_THOUSANDS = re.compile(r"(?<![0-9.,])([0-9]{1,3}(?: [0-9]{3})+)(?![0-9])")
_SPACED_RATIO = re.compile(r"(?<=[0-9])\s?(?:\\colon\s?|:)\s?(?=[0-9])")
_LEADING_PLUS = re.compile(r"^\s*\+\s*(?=[0-9.$\\])")
_ASSIGNED = re.compile(r"=[^=,;]{0,60}[0-9][^=,;]{0,60}(?:[,;]|\b(?:and|or)\b)\s{0,3}[A-Za-z\\]")
"""A value with a name, before another name: a list such as `a = 1, b = 2` is not a number."""
_LEADING_MINUS = re.compile(r"^\s*-\s+")
_OPERATOR = re.compile(r"[+*×÷^√/]|\\[A-Za-z]")
# A slash in a unit is not a calculation: "km/h", "g/ml", "$5/hour". Single letters are variables,
# except these few; after a bare number a slash divides.
_PER = re.compile(
    r"(?:(?<=[A-Za-z]{2})\s?/\s?(?=[A-Za-z])|(?:(?<=[A-Za-z])\s?|(?<=\$)\s{0,3})/\s?(?=[A-Za-z]{2})"
    r"|(?<=\b[mglL])\s?/\s?(?=[smhlL]\b))(?!\s?[xyz]\b)"
)
_UNIT_LETTERS = "mglLshKNJWVACF"
_VARIABLE = re.compile(
    rf"(?:^|[^A-Za-z\\'])(?![{_UNIT_LETTERS}aA](?![A-Za-z]))[A-Za-z](?![A-Za-z'])"
)
_BOUND = re.compile(RELATION)
_FACTORIAL = re.compile(r"[0-9)}]\s?!")
_SUBTRACTED = re.compile(r"(?:(?<![A-Za-z])[A-Za-z]{1,2}|[0-9²³)}\]])\s?-\s?$")
_GLUED = re.compile(r"[A-Za-z]{2,3}(?![A-Za-z])")
_SHORT_WORDS = frozenset(
    ("st", "nd", "rd", "th", "am", "pm", "yr", "yrs", "hrs", "pts", "pcs", "lbs", "mph", "kph",
     "mil", "bn", "kb", "mb", "gb", "tb", "db", "hp")
)  # fmt: skip
_INDEX = re.compile(r"\s?_\s?[{0-9A-Za-z]")
_NEGATED = re.compile(
    r"\b(?:not|isn't|cannot|can't|never|wrong|incorrect|impossible)\b", re.IGNORECASE
)
_PREPOSITION = re.compile(
    r"\b(?:in|per|for|after|of|over|from|every|each|on|at|by|within|during|with|among|between)\b",
    re.IGNORECASE,
)
_DURATION = re.compile(
    r"\s*(?P<many>[0-9]{1,6})\s?(?P<unit>[A-Za-z]{1,8})\.?,?\s?(?:and\s)?"
    r"(?P<few>[0-9]{1,6})\s?(?P<part>[A-Za-z]{1,8})\b\.?\s*"
)
_TIMES = {"d": "day", "m": "minute"}
"""Letters that are a time next to another time; alone, `m` is a metre."""
_MATHEMATICS = re.compile(
    r"\$\$?([^$]{1,2000})\$|\\\((.{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]", re.DOTALL
)
_CALCULATES = re.compile(r"\s?(?:[-+*/×÷^]|\\div)\s?[-$(\\]?\s?[0-9(\\]")
_SEVERAL = re.compile(r"\s?(?:[A-Za-z]{1,20}\s)?(?:,|;|and|or|&)\s?\$?-?$")
# In bookkeeping, a sum in parentheses is negative.
_PARENTHESIZED = re.compile(r"\s{0,9}\(\s?\$\s?[0-9][0-9,.]{0,40}\)\s{0,9}")
_FILLER = re.compile(r"[^\d\n]{0,60}")
MAX_EXPRESSION = 2_000
"""Maximum length of an answer compared as an expression, in characters."""
_WORDS = 4
"""Maximum words between "the answer is" and its number, such as "a total of about"."""


def extract(prediction: str) -> Extraction:
    """Extract the answer of a prediction. Never raises, for any text."""
    expression = ""
    for statement in statements(prediction):
        excerpt = " ".join(statement.text.split())
        if statement.place == "box":
            return Extraction(_number_of_box(statement.text), "box", excerpt, statement.text)
        if statement.place == "text":
            expression = expression or _last_expression(statement.text)
            number = _last_number(statement.text)
            if number is None:
                return Extraction(None, "none", "", expression)
            return Extraction(number, "text", number.text.strip(), expression)
        number = _stated_number(statement.text)
        if number is not None:
            return Extraction(number, "text", number.text.strip(), statement.text.lstrip(":：= "))
        if statement.place == "phrase" and expression == "":
            expression = statement.text.lstrip(":：= ")
    raise AssertionError("the whole text is a statement")


def check(prediction: str, gold: str) -> bool:
    """Whether the prediction answers the gold number. Raises ValueError if gold is not a number."""
    wanted = gold_number(gold)
    if wanted is None:
        raise ValueError(f"the gold answer {gold[:80]!r} is not a number")
    return matches_gold(extract(prediction), wanted)


def matches_gold(extraction: Extraction, wanted: Number) -> bool:
    """Whether an extracted answer is the expected number, in the same unit if both have one: 5 cm
    is not 5 km."""
    number = extraction.number
    if number is None or number.value is None or wanted.value is None:
        return False
    measured = same_measure(number.value, number.around, wanted.value, wanted.around)
    return bool(number.readings & wanted.readings) if measured is None else measured


def gold_number(gold: str) -> Number | None:
    """Return a reference answer as a number; None if it is not a single number. A whole GSM8K
    solution is accepted, too. Raises ValueError for an empty answer."""
    final = final_part(gold)
    if not any(character.isalnum() for character in final) and not _SIGNS.search(final):
        raise ValueError(f"the gold answer {gold[:80]!r} contains no answer")
    boxes = boxed_answers(final)
    number = _number_of_box(boxes[0] if boxes else final)
    return None if number is None or number.value is None else number


_SIGNS = re.compile(r"\\(?:emptyset|varnothing|infty)|[∅∞]|\{\s*\\?\}")


def final_part(gold: str) -> str:
    """Return the text after `####`, which marks the answer in a GSM8K solution, else the whole
    text."""
    return gold.rpartition("####")[2].strip()


_ONE_DECIMAL = re.compile(r"(?<![0-9.,'(\[{])([0-9]{1,9}),([0-9])(?![0-9.,')\]}])")


def _clean_text(text: str) -> str:
    """Apply `clean` to prose, not to a box: a list has a space after its comma, so `12,5` is
    12.5."""
    return _ONE_DECIMAL.sub(r"\1.\2", clean(text))


def _last_number(text: str) -> Number | None:
    cleaned = _clean_text(text)
    line = cleaned.rstrip().rpartition("\n")[2][-MAX_EXPRESSION:]
    duration = _duration(line)
    if duration is not None:
        return duration
    number = last_number(cleaned)
    if number is not None and number.value is not None and _PARENTHESIZED.fullmatch(line):
        return replace(number, value=-number.value, text=f"-{number.text}")
    return number or _number_in_words(text)


def _number_of_box(content: str) -> Number | None:
    cleaned = clean(content)
    duration = _duration(cleaned)
    if duration is not None:
        return duration
    cleaned = _SPACED_THOUSANDS.sub(lambda m: m[1].replace(" ", ""), cleaned)
    cleaned = _SPACED_RATIO.sub(":", cleaned)
    head, equals, tail = re.sub("≈", "=", cleaned).rpartition("=")
    tail, head = _LEADING_MINUS.sub("-", tail), _LEADING_MINUS.sub("-", head)
    part = tail if equals and find_numbers(tail) else (head.rpartition("=")[2] if equals else tail)
    part = _LEADING_PLUS.sub("", part)
    if equals and _ASSIGNED.search(f"{head}="):
        return None
    if _FACTORIAL.search(part) or _BOUND.search(part) or (equals and _has_unknowns(head)):
        return None
    numbers = find_numbers(part)
    if not numbers:
        return _number_in_words(part)
    first = numbers[0]
    if len(numbers) == 1:
        before, after = part[: first.start], part[first.end :]
        rest = _PER.sub(" ", f"{before} {after}")
        unfinished = (
            _OPERATOR.search(rest)
            or _VARIABLE.search(after)
            or _NEGATED.search(rest)
            or _INDEX.match(after)
            or _SUBTRACTED.search(before)
            or _is_product(after)
        )
        return None if unfinished else first
    second = numbers[1]
    between = part[first.end : second.start]
    leads = not part[: first.start].strip(" $-+*(")
    if leads and re.match(r"\s?[A-Za-z]", between) and _PREPOSITION.search(between):
        return first
    return None


def _is_product(after: str) -> bool:
    """Whether letters directly after a number are variables (`2ab`), not a unit (`2cm`)."""
    glued = _GLUED.match(after)
    if glued is None or glued[0].lower() in _SHORT_WORDS:
        return False
    return unit_of(glued[0]) is None


def _has_unknowns(side: str) -> bool:
    return SUM_OF_UNKNOWNS.search(side.rpartition(",")[2]) is not None


def _stated_number(text: str) -> Number | None:
    """Return the number in a sentence that states an answer, without a value if the sentence states
    several numbers or an unfinished calculation."""
    cleaned = _clean_text(text)
    duration = _duration(cleaned)
    if duration is not None:
        return duration
    numbers = find_numbers(cleaned)
    if not numbers:
        return _number_in_words(text)
    equals = max(cleaned.rfind("="), cleaned.rfind("≈"))
    right_side = [number for number in numbers if number.start > equals]
    if not right_side:
        return numbers[-1]
    first, *others = right_side
    lead = cleaned[equals + 1 : first.start]
    if not _FILLER.fullmatch(lead) or len(lead.split()) > _WORDS:
        return right_side[-1]
    if _CALCULATES.match(cleaned, first.end):
        return replace(first, value=None)
    if others:
        between = cleaned[first.end : others[0].start]
        if others[0].value is None and between.strip() in ("to", "and"):
            return others[0]
        if _SEVERAL.fullmatch(between):
            return replace(first, value=None)
    return first


def _duration(cleaned: str) -> Number | None:
    """Read `2 hours 30 minutes` as a number in either unit."""
    match = _DURATION.fullmatch(cleaned.strip(" .:$()"))
    if match is None:
        return None
    parts = _number_of_parts(match["unit"].lower(), match["part"].lower())
    if parts is None:
        return None
    total = int(match["many"]) * parts + int(match["few"])
    whole = match[0].strip()
    return Number(total, False, 0, len(whole), whole, also=frozenset({total / parts}))


def _number_of_parts(unit: str, part: str) -> Fraction | None:
    """How often a unit contains a smaller one; None unless that is a whole number."""
    for names in ((unit, part), (_TIMES.get(unit, unit), _TIMES.get(part, part))):
        larger, smaller = map(unit_of, names)
        if larger is not None and smaller is not None and larger[0] == smaller[0]:
            parts = larger[1] / smaller[1]
            return parts if parts > 1 and parts.denominator == 1 else None
    return None


def _number_in_words(text: str) -> Number | None:
    """Return the number in words that is a text's last line, or the part after that line's
    colon."""
    line = text.strip().rpartition("\n")[2]
    for part in (line, re.split(r"[:：]", line)[-1]):
        words = part.strip(" .。!*_$:")
        value = leading_number(words)
        if value is not None and len(words.split()) <= _WORDS + 2:
            return Number(Fraction(value), False, 0, len(words), words)
    return None


def _last_expression(text: str) -> str:
    """Return the last formula of a text, or its last line."""
    last = deque(_MATHEMATICS.finditer(text[-MAX_EXPRESSION:]), maxlen=1)
    if last:
        return next(group for group in last[0].groups() if group is not None).strip()
    line = text.strip().rpartition("\n")[2].strip()
    return line if len(line) <= MAX_EXPRESSION else ""
