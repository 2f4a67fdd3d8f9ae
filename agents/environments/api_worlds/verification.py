"""Verifies that a run fulfilled its instruction, by the state of the world and the facts in the
answer, never by comparison with the oracle's text.

* The world must be as the instruction requires: every request is fulfilled, and nothing else has
  changed. A second booking fails like a missing one; cancelling an order twice does no harm.
* The answer must contain each fact, in any words. It may also contain values from the instruction,
  from arguments of calls, from the chosen alternative and its row, from the effect of a change, and
  from the oracle's answer. Any other value that was read but not requested fails (the low of a day
  next to its high), and so does any other number, time or id, any other name of the requested kind,
  and the rejected alternatives if the instruction names all alternatives. So an answer that lists
  everything fails.
* An answer must be written, not pasted: any answer with a tool's JSON in it fails.
* Giving up is right only if the oracle finds no way; unless a tool is missing, a relevant call must
  have been tried.
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
    """`reason` describes the fault; it is empty if the instruction is solved."""

    reason: str = ""

    @property
    def solved(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class AnswerGoal:
    """Required and allowed contents of an answer. Values are names, ids, times and numbers, as
    text."""

    facts: tuple[str, ...]
    allowed: tuple[str, ...]
    """Other allowed values: those that the instruction names, and those of the chosen
    alternative."""
    rivals: frozenset[str]
    """Forbidden names, which were read but not chosen."""
    wrong: frozenset[str]
    """Alternatives that were not chosen: an answer that mentions one fails, even if the value is
    otherwise allowed."""
    keys: frozenset[str]
    """Keys of the observed objects."""


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
"""Matches a key as written in JSON, also inside a string, or in Python."""
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
    """Return the numbers, times and ids in a text, each in one spelling (`1,200.0` is `1200`)."""
    signed = _MINUS.sub("-", text)
    return frozenset(_normalize_number(match[0]) for match in _NUMBER.finditer(signed))


def contains_name(text: str, name: str) -> bool:
    """Whether a text contains a name as whole words, ignoring case."""
    lower, wanted = text.lower(), name.lower()
    start = lower.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if not lower[start - 1 : start].isalnum() and not lower[end : end + 1].isalnum():
            return True
        start = lower.find(wanted, start + 1)
    return False


def values_outside_lists(observations: Iterable[Any]) -> Iterable[str]:
    """Yield values of parsed observations that are not in a list."""
    for field in (field for observation in observations for field in observation.values()):
        if isinstance(field, str | int):
            yield str(field)


def rows_of(observations: Iterable[Any], selection: Collection[str]) -> Iterable[str]:
    """Yield the values of the rows in parsed observations that contain a chosen name, or a chosen
    number or day that no other row has."""
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
    """Whether a value identifies its object by itself, unlike a number, a time or a day."""
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
    """Return the other names of the facts' kinds."""
    kinds: frozenset[str] = frozenset()
    for fact in facts:
        for pool in POOLS:
            if fact in pool:
                kinds |= pool
    return kinds.difference(facts)
