"""Delegate's rules: the last run of digits of the prediction against that of the gold. Its
scripts look first for a number after "answer is".

It reproduces published numbers and is not to be trusted: "70,000" is read as 000, "$18.00" as 00,
and a sign is never seen. Its loader strips the commas of the gold answer first.
"""

from __future__ import annotations

import re

from loopline.bench.checkers.numeric import final_part

_DIGITS = re.compile(r"[0-9]+")
_ANSWER_IS = re.compile(r"answer is\s*([0-9]+)", re.IGNORECASE)


def check(prediction: str, gold: str) -> bool:
    """Whether both end in the same run of digits. No digits is wrong."""
    digits, wanted = _DIGITS.findall(prediction), _gold_digits(gold)
    return bool(digits) and digits[-1] == wanted


def check_with_phrase(prediction: str, gold: str) -> bool:
    """The same, but a number right after the last "answer is" goes first, as in its scripts."""
    phrase = _ANSWER_IS.findall(prediction)
    if phrase:
        return phrase[-1] == _gold_digits(gold)
    return check(prediction, gold)


def _gold_digits(gold: str) -> str | None:
    digits = _DIGITS.findall(final_part(gold).replace(",", ""))
    return digits[-1] if digits else None
