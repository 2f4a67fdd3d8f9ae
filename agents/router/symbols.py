"""Calculations in words, as symbols: "20% of 50 is 10" becomes `20% * 50 = 10`, and "3 boxes * 4
pens = 12 pens" becomes `3 * 4 = 12 pens`.

For features only. The ladder refuses an answer only for reasons that it can read for certain
(`loopline.agents.equations`); a score may also weigh merely likely ones.
"""

from __future__ import annotations

import re

_NUMBER = r"[$€£]?[0-9][0-9,]{0,20}(?:\.[0-9]{1,20})?%?"
_UNIT = (
    r"(?:[ \t]{1,3}(?!(?:plus|minus|times|over|and|of|is|are|was|or|by|to)\b)[A-Za-z]{1,20}){1,2}"
)
_PERCENT_OF = re.compile(
    rf"(?P<share>[0-9][0-9.]{{0,9}})[ \t]?(?:%|percent)[ \t]{{1,3}}of[ \t]{{1,3}}(?={_NUMBER})",
    re.IGNORECASE,
)
_PART_OF = re.compile(
    rf"(?P<part>\b(?:half|one half|a third|one third|a quarter|one quarter|one fourth)"
    rf"|\(?[0-9]{{1,4}}/[0-9]{{1,4}}\)?)[ \t]{{1,3}}of[ \t]{{1,3}}(?={_NUMBER})",
    re.IGNORECASE,
)
_PARTS = {"half": "1/2", "third": "1/3", "quarter": "1/4", "fourth": "1/4"}
_OPERATORS = tuple(
    (
        re.compile(
            rf"(?<=[0-9%])(?:{_UNIT})?[ \t]{{1,3}}{words}[ \t]{{1,3}}(?={_NUMBER})", re.IGNORECASE
        ),
        sign,
    )
    for words, sign in (
        (r"(?:plus|added to)", " + "),
        (r"minus", " - "),
        (r"(?:times|multiplied by)", " * "),
        (r"divided by", " / "),
    )
)
_UNITS = re.compile(
    rf"(?<=[0-9%]){_UNIT}(?:[ \t]?/[ \t]?[A-Za-z]{{1,20}})?"
    r"(?=[ \t]{0,3}[-+*/×÷=][ \t]{0,3}[$0-9(.])"
)
_EQUALS = re.compile(
    rf"(?P<left>{_NUMBER}(?:[ \t]{{0,3}}[-+*/×÷][ \t]{{0,3}}{_NUMBER}){{1,6}})(?:{_UNIT})?"
    r"[ \t]{1,3}(?:is equal to|is|are|equals|equal|gives(?: us)?|makes|leaves|comes to|totals)"
    rf"[ \t]{{1,3}}(?:a total of[ \t]{{1,3}})?(?={_NUMBER})",
    re.IGNORECASE,
)


def symbolic(text: str) -> str:
    """The text with these calculations as symbols, otherwise unchanged."""
    text = _PERCENT_OF.sub(lambda match: f"{match['share']}% * ", text)
    text = _PART_OF.sub(_part, text)
    for pattern, sign in _OPERATORS:
        text = pattern.sub(sign, text)
    text = _UNITS.sub("", text)
    return _EQUALS.sub(lambda match: f"{match['left']} = ", text)


def _part(match: re.Match[str]) -> str:
    word = match["part"].lower().split()[-1]
    return f"{_PARTS.get(word, match['part'])} * "
