"""The two filters with which lm-evaluation-harness scores GSM8K (task version 3).

strict: the first `#### number`. flexible: the last text that looks like a number. Both are then
compared as text, without commas, dollar signs, everything up to `#### ` and one final period; so
18.00 is not 18 here. A prediction without a match is wrong.
"""

from __future__ import annotations

import re

_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")


def strict(prediction: str, gold: str) -> bool:
    """Whether the first `#### number` is the gold answer, as text."""
    match = _STRICT.search(prediction)
    return match is not None and _strip_ignored(match[1].strip()) == _strip_ignored(gold)


def flexible(prediction: str, gold: str) -> bool:
    """Whether the last number-like text is the gold answer, as text."""
    matches = _FLEXIBLE.findall(prediction)
    return bool(matches) and _strip_ignored(matches[-1].strip()) == _strip_ignored(gold)


def _strip_ignored(text: str) -> str:
    text = text.replace(",", "").replace("$", "")
    # Greedy up to the last marker followed by a space, like the harness's pattern.
    text = text.rpartition("#### ")[2] if "#### " in text else text
    return text.removesuffix(".").lower()
