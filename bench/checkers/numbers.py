"""Numbers as people and models write them, read exactly.

`find_numbers` reads running text, LaTeX included, and gives every number as a fraction: commas
and thin spaces in thousands, signs, currency, percent, `\\frac`, mixed numbers, powers of ten.
Values are exact (`Fraction`), so 18.00 is 18 and 0.333 is not 1/3.

The text is hostile: every pattern is linear, and a number of more than `MAX_DIGITS` digits has
no value instead of costing quadratic time.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from fractions import Fraction

from agents.answers import SCALES, VULGAR_FRACTIONS

MAX_DIGITS = 120
"""More digits than any answer has; far below Python's limit for parsing integers (4,300)."""

MAX_EXPONENT = 60


@dataclass(frozen=True)
class Number:
    """A number in a text. `start` and `end` are offsets in the *cleaned* text."""

    value: Fraction | None
    """None when it was recognised but has no usable value (1/0, absurd length, 3:30)."""
    percent: bool
    start: int
    end: int
    text: str

    @property
    def readings(self) -> frozenset[Fraction]:
        """What the number may stand for: 50 % is 50 (percent) and 1/2."""
        if self.value is None:
            return frozenset()
        if self.percent:
            return frozenset({self.value, self.value / 100})
        return frozenset({self.value})


_CHARACTERS = {
    **{0xFF10 + digit: str(digit) for digit in range(10)},
    0xFF0C: ",",
    0xFF0E: ".",
    0xFF05: "%",
    0xFF04: "$",
    0xFF0B: "+",
    0xFF1D: "=",
    0x2212: "-",
    0xFE63: "-",
    0xFF0D: "-",
    0x2013: "-",
    0x2010: "-",
    0x2011: "-",
    0x20AC: "$",
    0x00A3: "$",
    0x20B9: "$",
    0x00A5: "$",
    0x00B0: " ",
    0x2044: "/",
    0x00B7: "×",
    0x22C5: "×",
    0x200B: "",
    0x2060: "",
    0xFEFF: "",
}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")

_WRAPPER = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|operatorname|mbox|boldsymbol)"
    r"\s*\{([^{}]*)\}"
)
_SUBSTITUTIONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\{,\}|\\text\{,\}", ","),
        (r"\\!", ""),
        (r"(?<=[0-9])(?:\\[,;: ]|[\u00a0\u202f\u2009\u2007])(?=[0-9]{3}(?![0-9]))", ","),
        # "70 000", but not "7 250": only noughts are surely a group.
        (r"(?<=[0-9]) (?=000(?![0-9]))", ","),
        (r"\\(?:left|right|displaystyle|bf|it)(?![A-Za-z])", ""),
        (r"\\(?:dfrac|tfrac|cfrac)(?![A-Za-z])", r"\\frac"),
        (r"\\(?:times|cdot)(?![A-Za-z])", "×"),
        (r"\\(?:approx|simeq)(?![A-Za-z])", "≈"),
        (r"\^\s*(?:\{\s*)?\\circ\s*\}?", " "),
        (r"\\(?:quad|qquad|enspace)(?![A-Za-z])", " "),
        (r"\\\$", "$"),
        (r"\\%", "%"),
        (r"\\(?:euro|pounds)(?![A-Za-z])", "$"),
        (r"\\[()\[\]]", " "),
        (r"\\[,;: ]|~|[\u00a0\u202f\u2009\u2007]", " "),
        (r"(?<![A-Za-z])(?:USD|EUR|GBP|CAD|AUD|INR|Rs\.?)\s{0,3}(?=[-+0-9.])", "$"),
    )
)
_SUPERSCRIPT_RUN = re.compile(r"([0-9A-Za-z)])([⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4})")
# The exponent of a unit or a variable (m^2, x^{2}) is no number of its own.
_LETTER_EXPONENT = re.compile(r"([A-Za-z])[ ]?\^[ ]?(?:\{[ ]?-?[0-9]{1,3}[ ]?\}|-?[0-9]{1,3})")
_WORD_EXPONENT = re.compile(r"\^\s?\{?\s?(?:st|nd|rd|th)\s?\}?")

_BLANKS = re.compile(r"[ \t]{2,}")

_PLAIN = r"(?:[0-9]{1,3}(?:,[0-9]{2,3}){0,60},[0-9]{3}(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
_NUM = rf"(?:{_PLAIN}|(?<!\.)\.[0-9]+)"
_TOKEN = re.compile(
    rf"""
    (?<![A-Za-z0-9_]) (?<![0-9]\.)
    (?:
      (?:(?P<whole>{_PLAIN})[ ]?)?
        \\frac[ ]?(?:\{{[ ]?(?P<up>-?[ ]?{_NUM})[ ]?\}}|(?P<up1>[0-9]))
              [ ]?(?:\{{[ ]?(?P<down>-?[ ]?{_NUM})[ ]?\}}|(?P<down1>[0-9]))
    | (?P<mixed>[0-9]+)(?:[ ]and)?[ ](?P<mixed_up>[0-9]+)[ ]?/[ ]?(?P<mixed_down>[0-9]+)(?![0-9/])
    | (?<!/)(?P<over>{_NUM})[ ]?/[ ]?(?P<under>{_PLAIN})(?![0-9/])
    | (?P<hour>[0-9]{{1,2}}):(?P<minute>[0-5][0-9])(?![0-9:])
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
    rf"|(?P<scale>{'|'.join(SCALES)})\b)",
    re.IGNORECASE,
)
_K = re.compile(r"[kK](?![A-Za-z0-9])")
_NEGATIVE_WORD = re.compile(r"\bnegative[ ]{1,3}\$?[ ]?$", re.IGNORECASE)


def clean(text: str) -> str:
    """The text with LaTeX spacing, currency and look-alike characters made plain."""
    text = text.translate(_CHARACTERS)
    text = _SUPERSCRIPT_RUN.sub(lambda m: f"{m[1]}^{m[2].translate(_SUPERSCRIPTS)}", text)
    for sign, plain in VULGAR_FRACTIONS.items():
        if sign in text:
            text = re.sub(rf"(?<=[0-9])[ ]?{sign}", f" {plain}", text).replace(sign, plain)
    for pattern, replacement in _SUBSTITUTIONS:
        text = pattern.sub(replacement, text)
    for _ in range(3):
        unwrapped = _WRAPPER.sub(r" \1 ", text)
        if unwrapped == text:
            break
        text = unwrapped
    text = _BLANKS.sub(" ", _WORD_EXPONENT.sub(" ", text))
    return _LETTER_EXPONENT.sub(r"\1", text)


def find_numbers(cleaned: str) -> list[Number]:
    """Every number of a text that `clean` has prepared, in order."""
    return [_number(cleaned, match) for match in _TOKEN.finditer(cleaned)]


def last_number(cleaned: str) -> Number | None:
    """The last number of a text that `clean` has prepared."""
    matches = deque(_TOKEN.finditer(cleaned), maxlen=1)
    return _number(cleaned, matches[0]) if matches else None


def exact(text: str) -> Fraction | None:
    """A plain decimal such as `1,234.50` as a fraction; None when it is absurdly long."""
    digits = text.replace(",", "").replace(" ", "")
    if len(digits) > MAX_DIGITS:
        return None
    return Fraction(digits)


def _number(text: str, match: re.Match[str]) -> Number:
    value = _value(match)
    start, end = match.span()
    percent = False
    after = _AFTER.match(text, end)
    if after:
        end = after.end()
        if after["percent"]:
            percent = True
        elif value is not None:
            value *= SCALES[after["scale"].lower()]
    elif value is not None and _K.match(text, end) and _after_currency(text, start):
        # "$70k"; without the currency a K is as likely a unit.
        value, end = value * 1000, end + 1
    shown = text[start:end]
    if value is not None and _is_negative(text, start):
        value, shown = -value, f"-{shown}"
    return Number(value, percent, start, end, shown)


def _value(match: re.Match[str]) -> Fraction | None:
    group = match.groupdict()
    if group["plain"] is not None:
        return _scaled(group["plain"], group["exponent"] or "0")
    if group["up"] is not None or group["up1"] is not None:
        part = _ratio(group["up"] or group["up1"], group["down"] or group["down1"])
        if part is None or group["whole"] is None:
            return part
        whole = exact(group["whole"])
        return None if whole is None else whole + part
    if group["mixed"] is not None:
        part, whole = _ratio(group["mixed_up"], group["mixed_down"]), exact(group["mixed"])
        return None if part is None or whole is None else whole + part
    if group["over"] is not None:
        return _ratio(group["over"], group["under"])
    if group["hour"] is not None:
        # A full hour is the number of that hour; 3:30 is no number.
        return Fraction(int(group["hour"])) if group["minute"] == "00" else None
    if group["mantissa"] is not None:
        return _scaled(group["mantissa"], group["ten"] or group["ten1"])
    return _power(group["base"], group["power"] or group["power1"])


def _ratio(up: str, down: str) -> Fraction | None:
    numerator, denominator = exact(up), exact(down)
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def _scaled(mantissa: str, exponent: str) -> Fraction | None:
    value = exact(mantissa)
    if value is None or len(exponent) > 4 or abs(int(exponent)) > MAX_EXPONENT:
        return None
    return value * Fraction(10) ** int(exponent)


def _power(base: str, exponent: str) -> Fraction | None:
    value = exact(base)
    if value is None or len(exponent) > 4 or abs(int(exponent)) > MAX_EXPONENT:
        return None
    if not value and int(exponent) < 0:
        return None
    return value ** int(exponent)


def _after_currency(text: str, start: int) -> bool:
    return text[max(0, start - 2) : start].rstrip(" ").endswith("$")


def _is_negative(text: str, start: int) -> bool:
    """Whether a minus before `start` is a sign and not a subtraction, a range or a bullet."""
    before = text[max(0, start - 24) : start]
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
