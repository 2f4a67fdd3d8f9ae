r"""Answers in a model's text: the last `\boxed{…}`, plain text, and exact numbers.

This is what roles and workflows need to pass an answer on. It judges nothing: whether an answer
is right is decided by whoever holds the reference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from agents.arithmetic import ExpressionError, evaluate, show
from agents.records import Trajectory

MAX_ANSWER_CHARS = 2_000
"""An answer is cut here; a longer one is an essay, and its text stays in the call."""

_BOX = re.compile(r"\\f?boxed\s*\{")
_BRACE = re.compile(r"[{}]")


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{…}` (braces may nest), or `None`."""
    # Each brace is looked at once, whatever the text: matching every box anew would be quadratic.
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
    (re.compile(r"(?<!\s)\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|°"), " degrees "),
    (re.compile(r"\\[()\[\]]"), " "),
    (re.compile(r"\\([$%#&_])"), r"\1"),
)
_MATH_DOLLARS = re.compile(r"(?<!\\)\$(?!\s)([^$]*)(?<![\\\s])\$")


def plain(text: str) -> str:
    """Text without the LaTeX that only formats: one line, no final full stop."""
    text = _MATH_DOLLARS.sub(r"\1", text)
    text = _WRAPPED.sub(r" \1 ", text)
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    text = " ".join(text.split())[:MAX_ANSWER_CHARS].rstrip()
    return text.removesuffix(".").rstrip()


def final_answer(text: str) -> str:
    """What a run answers: the last box, else the whole text, made plain."""
    boxed = last_boxed(text)
    return plain(text if boxed is None else boxed)


def final_text(trajectory: Trajectory) -> str | None:
    """The last text, whole, of the role that was asked the question: what a checker reads,
    however the run ended. `None` if that role got no completion."""
    for step in reversed(trajectory.steps):
        if step.agent == trajectory.steps[0].agent and step.candidates:
            calls = step.candidates[step.selected].calls
            return calls[-1].text if calls else None
    return None


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number as it was written."""

    value: Fraction
    percent: bool
    """A percent sign followed; `value` is the number before it."""

    def __str__(self) -> str:
        return show(self.value) + ("%" if self.percent else "")


VULGAR_FRACTIONS = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5",
    "⅗": "3/5", "⅘": "4/5", "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8",
    "⅞": "7/8",
}  # fmt: skip
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
"""What a number is multiplied by when this word follows it."""

_PLAIN_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"
# Letters, with hyphens only inside a word; "cm^2" is one, "x - y" is not.
_UNIT = r"[^\W\d_](?:[^\W\d_]|[ .,'()]|-(?=[^\W\d_]))*(?:\^\{?[23]\}?)?"
_NUMBER = re.compile(
    rf"(?P<sign>[-+−–])?\s*(?P<currency>[$€£¥]\s*)?(?P<minus>[-−])?"
    rf"(?:(?P<number>{_PLAIN_NUMBER})"
    rf"(?:\s*/\s*(?P<over>[0-9]+)|\s+(?P<top>[0-9]+)/(?P<bottom>[0-9]+))?)"
    rf"(?:\s*(?P<scale>(?ai:{'|'.join(SCALES)}|(?(currency)k|(?!))))\b)?"
    rf"(?:\s*(?P<percent>%|percent\b))?(?P<blank>\s*)(?P<unit>{_UNIT})?",
)
_LETTER_UNITS = frozenset("mglLshAVWNJCFa\u2126")
"""One letter that is hardly ever a variable; `a` is an article. K is none: kelvins or thousands,
nobody can tell."""
_GLUED_UNITS = frozenset(
    [
        "mm", "cm", "dm", "km", "nm", "ft", "in", "yd", "mi", "mg", "kg", "lb", "oz", "ml", "cl",
        "dl", "pt", "qt", "ms", "ns", "hr", "am", "pm", "ha", "cc", "hz", "pa", "kw", "kj", "kn",
        "ma", "mv", "kv", "ev", "kb", "mb", "gb", "tb", "st", "nd", "rd", "th",
    ]
)  # fmt: skip
"""Two letters right behind a number; any others ("5ab") are variables."""
_NUMBER_WORDS = frozenset(
    [
        *SCALES, *(f"{scale}s" for scale in SCALES), "hundred", "hundreds", "lakh", "lakhs",
        "crore", "crores", "mn", "bn", "half", "halves", "thirds", "fourths", "fifths", "sixths",
        "sevenths", "eighths", "ninths", "tenths", "hundredths", "thousandths", "squared", "cubed",
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
        "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
    ]
)  # fmt: skip
"""They make another number of the one before them: "2 thirds", "2 and a half"."""
_JOINING = frozenset(["and", "or", "plus", "minus", "times"])
"""What joins them to it; the "two" of "6 miles in two hours" is nothing to the 6."""
_EXPONENT = re.compile(r"(?<=[A-Za-z])(?:[²³]|\^\{?[23]\}?)")
_GREEK = re.compile(r"[\u0370-\u03ff]")
_MICRO_OR_OHM = re.compile(r"[µμ][A-Za-zΩ]+|[kKM]?[Ω\u2126]")
_NUMERAL = r"\s*(?:\{\s*([0-9]+)\s*\}|([0-9]))"
_FRACTION = re.compile(rf"\\[dtc]?frac{_NUMERAL}{_NUMERAL}")


def parse_number(text: str) -> Number | None:
    """The one number that the text is, or `None`: sign, currency, commas, decimals, `a/b`, mixed
    numbers, LaTeX and vulgar fractions, `million` and the like, a percent sign and a unit are
    understood; `x = 5` is 5. What may be a variable (`5x`, `3π`) is no unit."""
    if len(text) > MAX_ANSWER_CHARS:
        return None
    text = _FRACTION.sub(_written_out, plain(text)).strip()
    for sign, fraction in VULGAR_FRACTIONS.items():
        text = text.replace(sign, f" {fraction} ")
    _, equals, right = text.rpartition("=")
    if equals:
        text = right
    match = _NUMBER.fullmatch(text.strip())
    if match is None or not _only_names_a_unit(match):
        return None
    number = match["number"]
    if match["over"]:
        number = f"{number} / {match['over']}"
    elif match["top"]:
        number = f"{number} + {match['top']} / {match['bottom']}"
    try:
        value = evaluate(number)
    except ExpressionError:
        return None
    if match["scale"]:
        value *= {"k": 1000, **SCALES}[match["scale"].lower()]
    negative = (match["sign"] in ("-", "−", "–")) != bool(match["minus"])
    return Number(-value if negative else value, percent=bool(match["percent"]))


def _written_out(match: re.Match[str]) -> str:
    return f" {match[1] or match[2]}/{match[3] or match[4]}"


def _only_names_a_unit(match: re.Match[str]) -> bool:
    """Whether what stands behind a number leaves its value as it is, as far as anyone can tell."""
    unit = _EXPONENT.sub("", match["unit"] or "")
    if any(letter.isnumeric() for letter in unit):
        return False  # "5²" is 25, "5万" is 50,000
    words = [word for each in unit.split() if (word := each.strip(".,'()-"))]
    if words and not match["blank"] and _may_be_product(words[0]):
        return False
    if words and match["currency"] and len(words[0]) == 1 and words[0] != "a":
        return False  # "$5M"
    if words and words[-1] == "a":
        return False  # an article, as in "5 a day", has a noun
    joined = next((at for at, word in enumerate(words) if word.lower() in _JOINING), len(words))
    if any(_is_number_word(word) for word in [*words[:1], *words[joined:]]):
        return False
    # "6 from store B" names a store.
    return not any(
        _may_be_variable(word) for at, word in enumerate(words) if not at or word.islower()
    )


def _may_be_product(word: str) -> bool:
    return len(word) == 2 and word.isascii() and word.lower() not in _GLUED_UNITS


def _is_number_word(word: str) -> bool:
    return all(part in _NUMBER_WORDS for part in word.lower().split("-"))


def _may_be_variable(word: str) -> bool:
    if _GREEK.search(word):
        return _MICRO_OR_OHM.fullmatch(word) is None
    # A script without upper case, such as Chinese, has words of one letter.
    one_letter = len(word) == 1 and word.lower() != word.upper()
    return (one_letter and word not in _LETTER_UNITS) or set(word.lower()) <= set("xyz")
