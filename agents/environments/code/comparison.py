"""Compares outputs with expected ones.

The data sets' own judges differ: APPS' judge compares lines, then sets of lines, then floats by
NumPy's `allclose`; LiveCodeBench's judge compares stripped lines, then tokens as decimal numbers;
CodeContests has no judge. These rules apply to all:

* Trailing spaces on a line and empty lines at the end are ignored (as in all of them).
* Lines are compared one by one, and their words as text, else as equal decimal numbers
  (LiveCodeBench), else, if the expected word has a decimal point or an exponent, as numbers that
  differ by at most 1e-6, absolutely or relatively (as such problems state; APPS: 1e-5).
* Order matters, unlike in APPS' judge, whose sets of lines accept wrong answers.

Return values of functions are compared by Python's equality, as in APPS and LiveCodeBench, with
tuples as lists and the same tolerance if the expected number is a float.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

TOLERANCE = 1e-6
_MAX_NUMBER = 400
"""Maximum length of a word compared as a number, in characters; longer ones are compared only as
text."""


def outputs_agree(actual: str, expected: str) -> bool:
    """Whether a program's output is right."""
    actual_lines, expected_lines = _lines(actual), _lines(expected)
    if actual_lines == expected_lines:
        return True
    return len(actual_lines) == len(expected_lines) and all(
        _lines_agree(actual_line, expected_line)
        for actual_line, expected_line in zip(actual_lines, expected_lines, strict=True)
    )


def values_agree(actual: Any, expected: Any) -> bool:
    """Whether a function's return value is right. `actual` is plain data, which may have tuples,
    sets and numeric keys, unlike JSON; `expected` is JSON."""
    try:
        return _agree(actual, expected)
    except (RecursionError, OverflowError, ValueError):
        # Nested too deeply, or a whole number too large for a float or for printing.
        return False


def _agree(actual: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return (
            isinstance(actual, list | tuple)
            and len(actual) == len(expected)
            and all(
                _agree(actual_item, expected_item)
                for actual_item, expected_item in zip(actual, expected, strict=True)
            )
        )
    if isinstance(expected, dict):
        return isinstance(actual, Mapping) and _mappings_agree(actual, expected)
    if isinstance(expected, float) and isinstance(actual, int | float):
        return actual == expected or _is_close(float(actual), expected)
    return type(actual) in (type(expected), int, float, bool) and actual == expected


def _mappings_agree(actual: Mapping[Any, Any], expected: dict[str, Any]) -> bool:
    named = {key if isinstance(key, str) else str(key): value for key, value in actual.items()}
    return len(named) == len(actual) == len(expected) and all(
        key in named and _agree(named[key], value) for key, value in expected.items()
    )


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _lines_agree(actual: str, expected: str) -> bool:
    actual_words, expected_words = actual.split(), expected.split()
    return len(actual_words) == len(expected_words) and all(
        map(_words_agree, actual_words, expected_words)
    )


def _words_agree(actual: str, expected: str) -> bool:
    if actual == expected:
        return True
    actual_number, expected_number = _number(actual), _number(expected)
    if actual_number is None or expected_number is None:
        return False
    if actual_number == expected_number:
        return True
    is_float = any(sign in expected for sign in ".eE")
    return is_float and _is_close(float(actual_number), float(expected_number))


def _number(word: str) -> Decimal | None:
    # Other words that Decimal accepts (underscores, NaN, other scripts' digits) are not numbers
    # here.
    if len(word) > _MAX_NUMBER or not word.isascii() or not set(word) <= set("+-.eE0123456789"):
        return None
    try:
        return Decimal(word)
    except InvalidOperation:
        return None


def _is_close(actual: float, expected: float) -> bool:
    if math.isinf(actual) or math.isinf(expected):
        # Too large for a float; equal ones have been handled above.
        return False
    return math.isclose(actual, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
