"""Numbers as people and models write them, read exactly.

`find_numbers` reads running text, including LaTeX, and returns every number as a fraction: commas
and thin spaces in thousands, signs, currency, percent, `\\frac`, mixed numbers, powers of ten.
Values are exact (`Fraction`), so 18.00 is 18 and 0.333 is not 1/3. Dates, versions, ends of ranges
and bounds of inequalities are recognised and have no value.

The text is untrusted: every pattern is linear, and a number with more than `MAX_DIGITS` digits has
no value instead of costing quadratic time.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from fractions import Fraction

from loopline.agents.answers import SCALES
from loopline.bench.checkers.spelling import clean

__all__ = [
    "MAX_DIGITS", "RELATION", "SUM_OF_UNKNOWNS", "Number", "clean", "exact_fraction",
    "find_numbers", "last_number",
]  # fmt: skip

MAX_DIGITS = 120
"""Maximum digits of a number: more than any answer has, and far below Python's limit for parsing
integers (4,300)."""

MAX_EXPONENT = 60


@dataclass(frozen=True)
class Number:
    """A number in a text. `start` and `end` are offsets in the *cleaned* text."""

    value: Fraction | None
    """Exact value; None for a number without a usable value (1/0, absurd length, 3:30)."""
    percent: bool
    start: int
    end: int
    text: str
    around: str = ""
    """Text that may be the unit: a currency sign before the number, and the text after it."""
    also: frozenset[Fraction] = frozenset()
    """Other possible values: 2 for `2 dozen`, 2.5 (hours) for `2 hours 30 minutes`."""

    @property
    def readings(self) -> frozenset[Fraction]:
        """Return the values that the number may mean: 50 % is 50 (percent) and 1/2."""
        if self.value is None:
            return frozenset()
        if self.percent:
            return frozenset({self.value, self.value / 100})
        return frozenset({self.value}) | self.also


_SCALES = {
    **SCALES, "dozen": 12, "hundred": 100, "lakh": 10**5, "lakhs": 10**5, "crore": 10**7,
    "crores": 10**7, "mil": 10**6,
}  # fmt: skip
_HAN_SCALES = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_SHORT_SCALES = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9, "t": 10**12}
"""Scale letters after an amount of money; elsewhere these letters are units."""

_PLAIN = r"(?:[0-9]{1,3}(?:,[0-9]{2,3}){0,12},[0-9]{3}(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
_NUM = rf"(?:{_PLAIN}|(?<!\.)\.[0-9]+)"
_TOKEN = re.compile(
    rf"""
    (?<![A-Za-z0-9_]) (?<![0-9]\.)
    (?:
      (?P<compound>[0-9]+(?:[./][0-9]+){{2,}}|[0-9]+(?::[0-9]+){{2,}}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})
    | (?:(?P<whole>{_PLAIN})[ ]?)?
        \\frac[ ]?(?:\{{[ ]?(?P<up>-?[ ]?{_NUM})[ ]?\}}|(?P<up1>[0-9]))
              [ ]?(?:\{{[ ]?(?P<down>-?[ ]?{_NUM})[ ]?\}}|(?P<down1>[0-9]))
    | (?P<mixed>[0-9]+)(?:[ ]and)?[ ](?P<mixed_up>[0-9]+)[ ]?/[ ]?(?P<mixed_down>[0-9]+)(?![0-9/])
    | (?<!/)(?P<over>{_NUM})[ ]?/[ ]?(?P<under>{_PLAIN})(?![0-9/])
    | (?P<hour>[0-9]{{1,2}}):(?P<minute>[0-5][0-9])(?![0-9:])
    | (?P<first>[0-9]+):(?P<second>[0-9]+)(?![0-9:])
    | (?P<periodic>(?:[0-9]+)?\.[0-9]*)\\(?:overline|bar|dot)[ ]?\{{[ ]?(?P<period>[0-9]+)[ ]?\}}
    | (?P<mantissa>{_NUM})[ ]?[×*x][ ]?10[ ]?\^[ ]?
        (?:\{{[ ]?(?P<ten>-?[0-9]+)[ ]?\}}|(?P<ten1>-?[0-9]+))
    | (?P<base>{_NUM})[ ]?\^[ ]?(?:\{{[ ]?(?P<power>-?[0-9]+)[ ]?\}}|(?P<power1>-?[0-9]+))
    | (?P<plain>{_NUM})(?:[eE](?P<exponent>[+-]?[0-9]{{1,3}})(?![A-Za-z0-9]))?
    )
    """,
    re.VERBOSE,
)
_AFTER = re.compile(
    r"(?:[ ]?\$)?[ ]{0,2}(?:(?P<percent>%|percent\b|per cent\b)"
    rf"|(?P<scale>{'|'.join(sorted(_SCALES, key=len, reverse=True))})\b"
    rf"|(?P<han>[{''.join(_HAN_SCALES)}]))",
    re.IGNORECASE,
)
_SHORT_SCALE = re.compile(
    rf"(?P<sign>{'|'.join(sorted(_SHORT_SCALES, key=len, reverse=True))})(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_NEGATIVE_WORD = re.compile(
    r"(?:\bnegative|(?:^|[\n:=(]|\b(?:is|are|be|was|equals?|to|of|by|get|gets|got|gives|answer|result)\b)"
    r"[ ]{0,3}\bminus)[ ]{1,3}\$?[ ]?$",
    re.IGNORECASE,
)
RELATION = r"(?:[<>≤≥≠⩽⩾]=?|!=|\\(?:leq?|geq?|lt|gt|neq?|leqslant|geqslant)(?![A-Za-z]))"
_BOUND = re.compile(rf"[A-Za-z0-9)}}\]]\s?{RELATION}\s?-?\$?\s?$")
_BOUNDS = re.compile(rf"\s?{RELATION}\s?[-A-Za-z0-9\\(]")
_RANGE = re.compile(r"(?P<lead>\b[A-Za-z]{1,20} )?-?\$?[0-9][0-9.,]{0,30}%? to -?\$?$")
_SECOND_OF_TWO = re.compile(
    r"(?<![A-Za-z])([a-z])\s?=\s?-?[0-9./]{1,20}\s?"
    r"(?:(?:,|;|and)\s?(?!\1)|or\s?)[a-z]\s?=\s?-?$"
)
_ADDED_TO_UNKNOWN = re.compile(r"(?:[0-9][xyzn]|(?<![A-Za-z])[xyzn])\s?[-+]\s?$")
_BETWEEN = re.compile(r"\bbetween -?\$?[0-9][0-9.,]{0,30}%? and -?\$?$", re.IGNORECASE)
_COMES_FROM = frozenset({"from", "by"})
_NEGATED = re.compile(
    r"\b(?:not|isn't|aren't|wasn't|can't be|cannot be|never)\s{1,3}(?:be\s|equal(?: to)?\s)?-?\$?$",
    re.IGNORECASE,
)
_EITHER = re.compile(r"(?<![A-Za-z0-9.])-?\$?[0-9][0-9.,]{0,30}%? or -?\$?$")
_IN_INDEX = re.compile(r"_\s?\{\s?$")
_PLUS_OR_MINUS = re.compile(r"(?:\\pm|\+/-|\+-)\s?\$?\s?$")
_UNIT_CHARS = 40
_NO_UNIT = re.compile(r"[\n.,;:!?(=]|\b(?:and|or|for|with|from|because|which|so|to|than|of)\b")
_BEFORE = 90
"""Number of characters before a number that are searched for its sign and context."""
SUM_OF_UNKNOWNS = re.compile(
    r"(?<![A-Za-z\\])(?:[0-9]\s?[xyzbcknpqtuvw]|[a-fi-kn-z]\s?[-+^*/×]|[-+*/×]\s?[a-fi-kn-z])"
    r"(?![A-Za-z])"
)
"""Expression with a variable: a number equal to it is one side of an equation, not an answer."""
_PART = re.compile(r"[,;\n]|\b(?:so|then|thus|and|or)\b")


def find_numbers(cleaned: str) -> list[Number]:
    """Return every number of a text prepared by `clean`, in order."""
    return [_number(cleaned, match) for match in _TOKEN.finditer(cleaned)]


def last_number(cleaned: str) -> Number | None:
    """Return the last number of a text prepared by `clean`."""
    matches = deque(_TOKEN.finditer(cleaned), maxlen=1)
    return _number(cleaned, matches[0]) if matches else None


def exact_fraction(text: str) -> Fraction | None:
    """Return a plain decimal such as `1,234.50` as a fraction; None if it is absurdly long."""
    digits = text.replace(",", "").replace(" ", "")
    if len(digits) > MAX_DIGITS:
        return None
    return Fraction(digits)


def _number(text: str, match: re.Match[str]) -> Number:
    value = _value(match)
    start, end = match.span()
    percent = False
    also: set[Fraction] = set()
    after = _AFTER.match(text, end)
    if after:
        end = after.end()
        if after["percent"]:
            percent = True
        elif value is not None and after["scale"]:
            if after["scale"].lower() == "dozen":
                # "2 dozen" also answers "How many dozen?".
                also.add(value)
            value *= _SCALES[after["scale"].lower()]
        elif value is not None:
            value *= _HAN_SCALES[after["han"]]
    elif value is not None and _after_currency(text, start):
        # "$70k"; without a currency, K is just as likely a unit.
        short = _SHORT_SCALE.match(text, end)
        if short:
            value, end = value * _SHORT_SCALES[short["sign"].lower()], short.end()
    numeral = text[start:end]
    before = text[max(0, start - _BEFORE) : start]
    if _is_part(before) or _BOUNDS.match(text, end):
        value = None
    elif value is not None and _is_negative(before):
        value, numeral, also = -value, f"-{numeral}", {-alternative for alternative in also}
    around = f"{'$' if _after_currency(text, start) else ''} {text[end : end + _UNIT_CHARS]}"
    return Number(value, percent, start, end, numeral, _NO_UNIT.split(around)[0], frozenset(also))


def _is_part(before: str) -> bool:
    """Whether the text before a number shows that it is not a value by itself: the end of a range,
    a bound, one of two signs or values, a side of an equation with unknowns, an index; or that it
    is not the value."""
    if _PLUS_OR_MINUS.search(before) or _BOUND.search(before) or _BETWEEN.search(before):
        return True
    if _SECOND_OF_TWO.search(before) or _ADDED_TO_UNKNOWN.search(before):
        return True
    if _NEGATED.search(before) or _EITHER.search(before) or _IN_INDEX.search(before):
        return True
    spans = _RANGE.search(before)
    if spans is not None:
        # "It falls from 4 to -6" ends with the value.
        return (spans["lead"] or "").strip().lower() not in _COMES_FROM
    left = before.rstrip(" -$")
    if not left.endswith("="):
        return False
    return SUM_OF_UNKNOWNS.search(_PART.split(left[:-1])[-1]) is not None


def _value(match: re.Match[str]) -> Fraction | None:
    group = match.groupdict()
    if group["compound"] is not None:
        return None
    if group["plain"] is not None:
        return _scaled(group["plain"], group["exponent"] or "0")
    if group["up"] is not None or group["up1"] is not None:
        part = _ratio(group["up"] or group["up1"], group["down"] or group["down1"])
        if part is None or group["whole"] is None:
            return part
        whole = exact_fraction(group["whole"])
        return None if whole is None else whole + part
    if group["mixed"] is not None:
        part, whole = _ratio(group["mixed_up"], group["mixed_down"]), exact_fraction(group["mixed"])
        return None if part is None or whole is None else whole + part
    if group["over"] is not None:
        return _ratio(group["over"], group["under"])
    if group["hour"] is not None:
        # A full hour is the hour's number; 3:30 is not a number.
        return Fraction(int(group["hour"])) if group["minute"] == "00" else None
    if group["first"] is not None:
        return _ratio(group["first"], group["second"])
    if group["periodic"] is not None:
        return periodic_fraction(group["periodic"], group["period"])
    if group["mantissa"] is not None:
        return _scaled(group["mantissa"], group["ten"] or group["ten1"])
    return _power(group["base"], group["power"] or group["power1"])


def periodic_fraction(head: str, period: str) -> Fraction | None:
    """Return 0.1666… for `0.1` and `6`; None if the digits are absurdly long."""
    if len(head) + len(period) > MAX_DIGITS:
        return None
    whole, _, places = head.partition(".")
    scale = 10 ** len(places)
    finite_part = Fraction(int(f"{whole}{places}" or "0"), scale)
    return finite_part + Fraction(int(period), (10 ** len(period) - 1) * scale)


def _ratio(up: str, down: str) -> Fraction | None:
    numerator, denominator = exact_fraction(up), exact_fraction(down)
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def _scaled(mantissa: str, exponent: str) -> Fraction | None:
    value = exact_fraction(mantissa)
    if value is None or len(exponent) > 4 or abs(int(exponent)) > MAX_EXPONENT:
        return None
    return value * Fraction(10) ** int(exponent)


def _power(base: str, exponent: str) -> Fraction | None:
    value = exact_fraction(base)
    if value is None or len(exponent) > 4 or abs(int(exponent)) > MAX_EXPONENT:
        return None
    if not value and int(exponent) < 0:
        return None
    return value ** int(exponent)


def _after_currency(text: str, start: int) -> bool:
    return text[max(0, start - 2) : start].rstrip(" ").endswith("$")


def _is_negative(before: str) -> bool:
    """Whether a minus at the end of this text is a sign, not a subtraction or a bullet."""
    if _NEGATIVE_WORD.search(before):
        return True
    stripped = before.rstrip(" ")
    adjacent = stripped == before
    if stripped.endswith("$"):
        before = stripped[:-1]
        stripped = before.rstrip(" ")
        adjacent = adjacent and stripped == before
    if not stripped.endswith("-"):
        return False
    head = stripped[:-1]
    previous = head.rstrip(" ")
    spaced = previous != head
    if not previous:
        return adjacent
    last = previous[-1]
    if last in "=(≈{[<>$":
        return True
    if last == "\n":
        return adjacent
    if not adjacent:
        return last == ":"
    if spaced:
        # "is -5" is a sign, "10 -5" a subtraction.
        return not (last.isdigit() or last in ")}%")
    return not (last.isalnum() or last in ")}%-.")
