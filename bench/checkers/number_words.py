"""Whole numbers in words, English and Chinese: `eighty-three`, `a dozen`, `两百一十五`."""

from __future__ import annotations

import re

_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SMALL = {
    **{word: value for value, word in enumerate(_ONES)},
    **{word: value for value, word in zip(range(20, 100, 10), _TENS, strict=True)},
    "a": 1, "an": 1, "fourty": 40,
}  # fmt: skip
_LARGE = {
    "dozen": 12, "thousand": 10**3, "lakh": 10**5, "million": 10**6, "crore": 10**7,
    "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
_WORD = re.compile(r"[a-z]+")
_MAX_CHARS = 200

_HAN_DIGITS = {**{sign: value for value, sign in enumerate("零一二三四五六七八九")},
               "〇": 0, "两": 2, "兩": 2}  # fmt: skip
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000}
_HAN_SCALES = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_HAN = re.compile(rf"[{''.join((*_HAN_DIGITS, *_HAN_UNITS, *_HAN_SCALES))}]{{1,30}}")


def leading_number(text: str) -> int | None:
    """Return the number in words that a text starts with, ignoring the rest; None without one."""
    text = text.strip(" \t\n*_`$\"'“”(.:").lower()[:_MAX_CHARS]
    han = _HAN.match(text)
    if han is not None:
        return _parse_han(han[0])
    sign = 1
    for word in ("negative ", "minus "):
        if text.startswith(word):
            sign, text = -1, text.removeprefix(word).lstrip()
    value = _parse_english(text)
    return None if value is None else sign * value


def _parse_english(text: str) -> int | None:
    total, current, has_number, only_article = 0, 0, False, True
    at = 0
    for match in _WORD.finditer(text):
        word = match[0]
        if text[at : match.start()].strip(" -\t"):
            break
        if word in _SMALL and (not has_number or _adds(current, _SMALL[word])):
            current += _SMALL[word]
            only_article = only_article and word in ("a", "an")
        elif word == "hundred" and has_number and 0 < current < 100:
            current, only_article = current * 100, False
        elif word in _LARGE and has_number:
            total, current, only_article = total + max(1, current) * _LARGE[word], 0, False
        elif not (word == "and" and has_number):
            break
        has_number, at = True, match.end()
    return total + current if has_number and not only_article else None


def _adds(current: int, small: int) -> bool:
    """Whether a number below 100 can follow the previous words: `eighty three`, `hundred ten`, but
    not `three four`."""
    if current % 100 == 0:
        return True
    return current % 10 == 0 and current % 100 >= 20 and 0 < small < 10


def _parse_han(text: str) -> int | None:
    total = section = digit = 0
    for sign in text:
        if sign in _HAN_DIGITS:
            digit = digit * 10 + _HAN_DIGITS[sign]
        elif sign in _HAN_UNITS:
            section, digit = section + max(1, digit) * _HAN_UNITS[sign], 0
        else:
            total, section, digit = (total + section + digit) * _HAN_SCALES[sign], 0, 0
    return total + section + digit
