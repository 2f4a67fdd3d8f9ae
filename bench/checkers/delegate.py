"""Delegate's rules: compare the last run of digits in the prediction with that in the gold answer.
Delegate's scripts first search for a number after "answer is".

This checker only reproduces published numbers and is unreliable: it reads "70,000" as 000 and
"$18.00" as 00, and it ignores signs. Delegate's loader first strips the commas of the gold answer.
"""

from __future__ import annotations

import re

from loopline.bench.checkers.numeric import final_part

_DIGITS = re.compile(r"[0-9]+")
_ANSWER_IS = re.compile(r"answer is\s*([0-9]+)", re.IGNORECASE)


def check(prediction: str, gold: str) -> bool:
    """Whether both have the same last run of digits. A text without digits is wrong."""
    digits, wanted = _DIGITS.findall(prediction), _gold_digits(gold)
    return bool(digits) and digits[-1] == wanted


def check_with_phrase(prediction: str, gold: str) -> bool:
    """The same, but prefer a number right after the last "answer is", as Delegate's scripts do."""
    phrase = _ANSWER_IS.findall(prediction)
    if phrase:
        return phrase[-1] == _gold_digits(gold)
    return check(prediction, gold)


def _gold_digits(gold: str) -> str | None:
    digits = _DIGITS.findall(final_part(gold).replace(",", ""))
    return digits[-1] if digits else None
