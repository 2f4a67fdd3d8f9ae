r"""Extract answers from a model's text: the last `\boxed{…}`, plain text, and exact numbers.

Roles and workflows use this module to pass an answer on. It judges nothing: only the holder of the
reference decides whether an answer is right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from loopline.agents.arithmetic import ExpressionError, evaluate, format_number
from loopline.agents.records import Trajectory
from loopline.agents.thinking import text_without_thoughts

MAX_ANSWER_BYTES = 1_000_000
"""Maximum size in bytes of a delivered answer; a longer one is truncated, with a note, and its full
text stays in the call. No model here writes that much in one completion."""
MAX_NUMBER_CHARS = 2_000
"""Maximum length of a number in characters; a longer text is not a number."""

_BOX = re.compile(r"\\f?boxed\s*\{")
_BRACE = re.compile(r"[{}]")


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{…}` (braces may nest), or `None`."""
    # Each brace is checked once, for any text: matching every box again would be quadratic.
    openings = {match.end() - 1: match.end() for match in _BOX.finditer(text)}
    if not openings:
        return None
    stack: list[int] = []
    best: tuple[int, int] | None = None
    for brace in _BRACE.finditer(text):
        at = brace.start()
        if at > 0 and text[at - 1] == "\\":
            continue
        if brace.group() == "{":
            stack.append(at)
        elif stack:
            opened = stack.pop()
            if opened in openings and (best is None or opened > best[0]):
                best = (opened, at)
    return None if best is None else text[best[0] + 1 : best[1]].strip()


_WRAPPED = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_REPLACEMENTS = (
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"(?<=[0-9])\\[,!]\s?(?=[0-9]{3})"), ""),
    (re.compile(r"\\[,;:! ]|~"), " "),
    (re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])"), ""),
    (re.compile(r"\^?\s?\\degree(?![A-Za-z])"), "°"),
    (re.compile(r"(?<!\s)\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|°"), " degrees "),
    (re.compile(r"\\[()\[\]]"), " "),
    (re.compile(r"\\([$%#&_])"), r"\1"),
    # In `\text{ cm}^2`, the exponent belongs to the unit.
    (re.compile(r"(?<=[A-Za-z])[ ]{1,9}(?=\^)"), ""),
)
_MATH_DOLLARS = re.compile(r"(?<!\\)\$(?!\s)([^$]*)(?<![\\\s])\$")


def strip_latex(text: str) -> str:
    """Text without LaTeX that only formats: one line, no final period. Only for comparisons: the
    text itself is delivered unchanged."""
    text = _MATH_DOLLARS.sub(r"\1", text)
    text = _WRAPPED.sub(r" \1 ", text)
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    text = " ".join(text.split())
    return text.removesuffix(".").rstrip()


def final_answer(text: str) -> str:
    """A run's answer in a model's text: the content of the last box, else the whole text without
    thoughts, unchanged except for blank lines at its ends."""
    spoken = text_without_thoughts(text)
    boxed = last_boxed(spoken)
    whole = _BLANK_LINES.sub("", spoken).rstrip() if boxed is None else unwrap_box(boxed)
    return truncate_answer(whole)


_BLANK_LINES = re.compile(r"\A(?:[ \t]*\r?\n)+")
_SHOWN = (
    *(pattern_rule for pattern_rule in _REPLACEMENTS if "circ" not in pattern_rule[0].pattern),
    (re.compile(r"\s?\^\s?(?:\{\s?\\circ\s?\}|\\circ(?![A-Za-z]))"), "°"),
    (re.compile(r"(?<=\S)[ \t]{2,}"), " "),
)


def unwrap_box(boxed: str) -> str:
    """The content of a box for display: without the LaTeX that only formats, if it is LaTeX."""
    if not any(sign in boxed for sign in "\\${"):
        return boxed.strip()
    boxed = _WRAPPED.sub(r" \1 ", _MATH_DOLLARS.sub(r"\1", boxed))
    for pattern, replacement in _SHOWN:
        boxed = pattern.sub(replacement, boxed)
    return boxed.strip()


def truncate_answer(answer: str) -> str:
    """An answer as delivered: truncated with a marker beyond `MAX_ANSWER_BYTES`."""
    whole = answer.encode()
    if len(whole) <= MAX_ANSWER_BYTES:
        return answer
    prefix = whole[:MAX_ANSWER_BYTES].decode(errors="ignore")
    return f"{prefix}\n[cut: the first {MAX_ANSWER_BYTES} of {len(whole)} bytes]"


def final_text(trajectory: Trajectory) -> str | None:
    """The last whole text of the role that was asked the question, for a checker to read, however
    the run ended. `None` if that role got no completion."""
    for step in reversed(trajectory.steps):
        if step.agent == trajectory.steps[0].agent and step.candidates:
            calls = step.candidates[step.selected].calls
            return calls[-1].said if calls else None
    return None


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number as written."""

    value: Fraction
    percent: bool
    """Whether a percent sign followed; `value` is the number before it."""

    def __str__(self) -> str:
        return format_number(self.value) + ("%" if self.percent else "")


VULGAR_FRACTIONS = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5",
    "⅗": "3/5", "⅘": "4/5", "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8",
    "⅞": "7/8",
}  # fmt: skip
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
"""Factor of a number that is followed by this word."""

_PLAIN_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"
_SHORT_UNIT = (
    r"mm|cm|km|m|ft|in|yd|mi|mg|kg|g|lb|oz|ml|mL|l|L|s|min|hrs?|h|am|pm|AM|PM|mph|st|nd|rd|th"
)
_UNIT_WORD = (
    r"dollars?|cents?|euros?|usd|eur|gbp|seconds?|minutes?|hours?|days?|weeks?|months?|years?"
    r"|degrees?(?: ?(?:celsius|fahrenheit|c|f)\b)?|(?:centi|kilo|milli)?met(?:er|re)s?"
    r"|inch(?:es)?|foot|feet|yards?|miles?|(?:kilo|milli)?grams?|pounds?|ounces?|tons?"
    r"|(?:milli)?lit(?:er|re)s?|cups?|pints?|quarts?|gallons?|persons?|people|children|men|women"
)
# After a currency sign, short forms mean millions: "$5m", "$5 mil".
_UNIT = rf"(?:(?ai:{_UNIT_WORD})|(?(currency)(?!)|(?:{_SHORT_UNIT})))(?:[²³]|\^\{{?[23]\}}?|\b)"
_PER = rf"\s*/\s*{_UNIT}"
_OF_A_UNIT = r"(?ai:per|an?|each|every|square|sq\.?|cubic)\s+"
_QUANTITY = (
    r"times|equals|[a-z]*(?:ths|illions)|halves|thirds|quarters|pairs|couples|tens|dozens|scores"
    r"|hundreds|thousands|myriads|lakhs|crores|twos|threes|fours|fives|sixes|sevens|eights|nines"
    r"|twelves|(?:twen|thir|for|fif|six|seven|eigh|nine)ties"
)
# A plural noun, so that it counts something: no "dozen", "more" or "squared", and no "plus" or
# "less".
_COUNTED = rf"(?!(?:{_QUANTITY})\b)[a-z]{{2,}}[a-hj-rtv-z]s\b"
_NUMBER = re.compile(
    rf"(?P<sign>[-+−–])?\s*(?P<currency>[$€£¥]\s*)?(?P<minus>[-−])?"
    rf"(?:(?P<number>{_PLAIN_NUMBER})"
    rf"(?:\s*/\s*(?P<over>[0-9]+)|\s+(?P<top>[0-9]+)/(?P<bottom>[0-9]+))?)"
    rf"(?:\s*(?P<scale>(?ai:{'|'.join(SCALES)}|(?(currency)k|(?!))))\b)?"
    rf"(?:\s*(?P<percent>%|percent\b)|\s*[€£¥])?"
    # After a bare number, a slash divides: "5/m".
    rf"(?:(?:\s+{_COUNTED}|\s*(?:{_OF_A_UNIT})*{_UNIT})(?:{_PER})?|(?(currency)(?:{_PER})?))"
    rf"(?:\s+(?:{_OF_A_UNIT})+{_UNIT})*(?:\s+each)?",
)
_NUMERAL = r"\s*(?:\{\s*([0-9]+)\s*\}|([0-9]))"
_FRACTION = re.compile(rf"\\[dtc]?frac{_NUMERAL}{_NUMERAL}")


def parse_number(text: str) -> Number | None:
    """The single number that the text represents, or `None` if it can't be read for certain.

    Accepted are sign, currency, commas, decimals, `a/b`, mixed numbers, LaTeX and vulgar fractions,
    `million` and similar words, a percent sign; `x = 5` is 5. Units of the lists above may follow
    ("miles per hour", "km/h", "cm^2"), or one counted noun, a plural in small letters ("12
    apples").

    Everything else is refused: a variable or function (`5x`, "3 pi"), a unit that is not listed,
    more words ("5 or more apples", "12 red apples"), a noun that is not a plural with s or may be a
    quantity ("2 dozen", "4 fifths", "3 pairs", "6 times"), a sum that looks like a mixed number
    ("21 98/2").
    """
    if len(text) > MAX_NUMBER_CHARS:
        return None
    text = _FRACTION.sub(_expand_fraction, strip_latex(text)).strip()
    for sign, fraction in VULGAR_FRACTIONS.items():
        text = text.replace(sign, f" {fraction} ")
    _, equals, right = text.rpartition("=")
    if equals:
        text = right
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    number = match["number"]
    if match["over"]:
        number = f"{number} / {match['over']}"
    elif match["top"]:
        if "." in number or int(match["top"]) >= int(match["bottom"]):
            return None
        number = f"{number} + {match['top']} / {match['bottom']}"
    try:
        value = evaluate(number)
    except ExpressionError:
        return None
    if match["scale"]:
        value *= {"k": 1000, **SCALES}[match["scale"].lower()]
    negative = (match["sign"] in ("-", "−", "–")) != bool(match["minus"])
    return Number(-value if negative else value, percent=bool(match["percent"]))


def _expand_fraction(match: re.Match[str]) -> str:
    return f" {match[1] or match[2]}/{match[3] or match[4]}"
