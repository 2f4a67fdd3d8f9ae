r"""Parse answers of a requested type from a small model's text.

The mathematical prompts request it in a box (`boxed_answer`). The general ones request a text
answer as the whole message, and every other type after `Answer:` at the end. `answer_in` also
accepts the forms that models use instead: a box, a code fence, the bare value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date

from loopline.agents.answer_schema import refuse_constant, unfenced
from loopline.agents.answers import (
    MAX_ANSWER_BYTES,
    Number,
    last_boxed,
    parse_number,
    truncate_answer,
    unwrap_box,
)
from loopline.agents.arithmetic import ExpressionError, evaluate
from loopline.agents.payloads import ExpectedType
from loopline.agents.thinking import text_without_thoughts

_ANSWER_MARK = re.compile(r"(?im)^[ \t>*_#`-]*(?:final )?answer[*_`]*[:：][*_`]*")
_FENCE = re.compile(r"[ \t]*+(```+|~~~+)")
_SCIENTIFIC = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?[eE][-+]?[0-9]{1,4}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_BOOLEANS = {"yes": "true", "true": "true", "no": "false", "false": "false"}


def boxed_answer(text: str, expected: ExpectedType) -> str | None:
    """The content of the last box in the canonical form of its type, or `None`."""
    boxed = last_boxed(text_without_thoughts(text))
    if boxed is None:
        return None
    if expected == "text":
        return unwrap_box(boxed) or None
    return _canonical(boxed, expected)


def answer_in(text: str, expected: ExpectedType) -> str | None:
    """The answer in a text in the canonical form of its type, or `None`."""
    spoken = text_without_thoughts(text)
    if expected == "text":
        return truncate_answer(spoken.strip()) or None
    for place in _places(spoken):
        answer = _canonical(place, expected)
        if answer is not None:
            return answer
    return None


def _places(text: str) -> Iterator[str]:
    """Possible places of an answer, most reliable first."""
    if marks := [*_ANSWER_MARK.finditer(text)]:
        yield text[marks[-1].end() :]
    boxed = last_boxed(text)
    if boxed is not None:
        yield boxed
    fenced = _last_fenced(text)
    if fenced is not None:
        yield fenced
    yield text


def _last_fenced(text: str) -> str | None:
    """Content of the last code fence. Line by line: hostile text opens many and closes none."""
    last, mark = None, ""
    lines: list[str] = []
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if mark and fence and fence[1].startswith(mark) and fence.end() == len(line.rstrip()):
            last, mark = "\n".join(lines), ""
        elif mark:
            lines.append(line)
        elif fence:
            mark, lines = fence[1], []
    return last


def _canonical(text: str, expected: ExpectedType) -> str | None:
    """The text as a value of the type, or `None`.

    Commas, currency and units are removed from numbers, and a percent sign from an integer.
    Booleans become `true` or `false`. JSON stays as written.
    """
    text = unfenced(text)
    match expected:
        case "text":
            return text or None
        case "integer" | "number":
            number = _number(text.strip("*_` "))
            if number is None:
                return None
            if expected == "number":
                return str(number)
            return str(number.value.numerator) if number.value.denominator == 1 else None
        case "boolean":
            return _BOOLEANS.get(text.strip("*_`\"'. ").lower())
        case "date":
            return _date(text.strip("*_`\"'. "))
        case "list" | "json":
            return _json(text, list if expected == "list" else (list, dict))


def _number(text: str) -> Number | None:
    if not _SCIENTIFIC.fullmatch(text):
        return parse_number(text)
    # JSON writes very small and very large numbers like this.
    try:
        return Number(evaluate(text), percent=False)
    except ExpressionError:
        return None


def _date(text: str) -> str | None:
    """A valid calendar date."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return None


def _json(text: str, kind: type | tuple[type, ...]) -> str | None:
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return None
    whole = len(text.encode(errors="replace")) <= MAX_ANSWER_BYTES
    return text if whole and isinstance(value, kind) else None
