"""Whether a run did what its instruction asked: by the state of the world and by the facts in the
answer, never by comparison with the oracle's text.

* The world must be as the instruction wants it: everything requested is there, and nothing else has
  changed. A second booking fails as a missing one does; cancelling an order twice does no harm.
* The answer must contain each fact, in any words. It may also contain what the instruction says,
  what tools were called with, what was chosen among several and everything known about it, what a
  change has caused, and what the oracle itself says. Anything else that was read but not asked for
  fails (the low of a day next to its high), and so does any other number, time or id, any other
  name of the kind that was asked for, and the alternatives that lost where the instruction names
  all that could be chosen. So an answer that lists everything fails.
* An answer is said and not pasted: one with a tool's JSON in it fails, whatever was asked.
* Giving up is right where the oracle finds that there is no way, and only there; but unless a tool
  is missing, something must have been tried.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loopline.agents.environments.api_worlds.names import POOLS, WEEKDAYS
from loopline.agents.environments.word_problems.words import NUMBER_WORDS


@dataclass(frozen=True)
class Verdict:
    """`reason` says what is wrong; it is empty when the instruction is solved."""

    reason: str = ""

    @property
    def solved(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class AnswerGoal:
    """Contents that an answer must and may have. Values are names, ids, times and numbers, as
    text."""

    facts: tuple[str, ...]
    allowed: tuple[str, ...]
    """Further values that may be said: those that the instruction names, and those that belong to
    the chosen thing."""
    rivals: frozenset[str]
    """Names that must not be said: they were read and not chosen."""
    wrong: frozenset[str]
    """Values that could have been chosen and were not: an answer that says one fails, whatever is
    allowed, and whatever it says about it."""
    keys: frozenset[str]
    """Keys of the objects that were observed."""


_NUMBER = re.compile(
    r"""(?x)
    \d{3}-\d{4}                     # a phone number
    | \d{1,2}:\d{2}                 # a time
    | (?<![A-Za-z])[A-Za-z]{1,3}\d+ # an id
    | (?:(?<![\w.:-])-)?\d[\d,]*(?:\.\d+)?  # a number, with its sign
    """
)
_MINUS = re.compile(r"(?i)\N{MINUS SIGN}|\bminus\s+(?=\d)")
_KEY = re.compile(r"""(?P<quote>\\?["'])(?P<key>[^"'\\]{1,64})(?P=quote)\s*:""")
"""A key as JSON writes it, also inside a string, or as Python does."""
_WORDS = re.compile(r"[a-z]+")
_SPELLED = {word: str(value) for value, word in enumerate(NUMBER_WORDS)}


def check_answer(text: str, goal: AnswerGoal) -> Verdict:
    """Check an answer against its goal."""
    if not text.strip():
        return Verdict("the answer is empty")
    for match in _KEY.finditer(text):
        if match["key"] in goal.keys:
            return Verdict(f"the answer pastes what a tool said: {match[0]}")
    numbers = numbers_in(text)
    words = _WORDS.findall(text.lower())
    spelled = frozenset(_SPELLED[word] for word in words if word in _SPELLED)
    for fact in goal.facts:
        in_words = _is_number(fact) and numbers_in(fact) == spelled
        if not in_words and not _contains_value(text, fact):
            return Verdict(f"the answer does not say {fact}")
    for lost in sorted(goal.wrong):
        if _contains_value(text, lost):
            return Verdict(f"the answer names {lost}, which was not chosen")
    allowed = (*goal.facts, *goal.allowed)
    allowed_numbers = {number for value in allowed for number in numbers_in(value)}
    strange = sorted(numbers - allowed_numbers)
    if strange:
        return Verdict(f"the answer says {strange[0]}, which is not asked for")
    for rival in sorted(goal.rivals | _names_of_kinds(goal.facts)):
        if contains_name(text, rival) and not any(contains_name(value, rival) for value in allowed):
            return Verdict(f"the answer names {rival}, which is not asked for")
    return Verdict()


def check_world(expected: Mapping[str, str], actual: Mapping[str, str]) -> Verdict:
    """Compare the tables of two worlds, by `domain.table`."""
    for table, rows in expected.items():
        if actual.get(table) != rows:
            return Verdict(f"{table} is not as the instruction wants it")
    return Verdict()


def numbers_in(text: str) -> frozenset[str]:
    """Numbers, times and ids of a text, each in one spelling (`1,200.0` is `1200`)."""
    signed = _MINUS.sub("-", text)
    return frozenset(_normalize_number(match[0]) for match in _NUMBER.finditer(signed))


def contains_name(text: str, name: str) -> bool:
    """Whether a text contains a name as whole words, in upper or lower case."""
    lower, wanted = text.lower(), name.lower()
    start = lower.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if not lower[start - 1 : start].isalnum() and not lower[end : end + 1].isalnum():
            return True
        start = lower.find(wanted, start + 1)
    return False


def values_outside_lists(observations: Iterable[Any]) -> Iterable[str]:
    """Values of parsed observations that are in no list."""
    for field in (field for observation in observations for field in observation.values()):
        if isinstance(field, str | int):
            yield str(field)


def rows_of(observations: Iterable[Any], selection: Collection[str]) -> Iterable[str]:
    """Values of the rows in parsed observations that have a chosen name, or a chosen number or day
    that no other row has."""
    rows = [
        [str(value) for value in row.values()]
        for observation in observations
        for field in observation.values()
        if isinstance(field, list)
        for row in field
        if isinstance(row, dict)
    ]
    among_rows = Counter(value for row in rows for value in set(row))
    for row in rows:
        if any(value in selection and (is_name(value) or among_rows[value] == 1) for value in row):
            yield from row


def is_name(value: object) -> bool:
    """Whether a value alone tells what is meant: not a number, a time or a day."""
    return isinstance(value, str) and value not in _DAYS and any(map(str.isalpha, value))


_DAYS = frozenset(WEEKDAYS)


def _contains_value(text: str, value: str) -> bool:
    return (
        numbers_in(value) <= numbers_in(text) if _is_number(value) else contains_name(text, value)
    )


def _is_number(fact: str) -> bool:
    return _NUMBER.fullmatch(fact) is not None


def _normalize_number(number: str) -> str:
    if ":" in number:
        return number.removeprefix("0")
    if number[-1].isdigit() and not number[0].isalpha():
        plain = number.replace(",", "")
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    return number.upper()


def _names_of_kinds(facts: Iterable[str]) -> frozenset[str]:
    """Names of the kinds of the facts."""
    kinds: frozenset[str] = frozenset()
    for fact in facts:
        for pool in POOLS:
            if fact in pool:
                kinds |= pool
    return kinds.difference(facts)
