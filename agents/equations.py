r"""Find the equations between plain numbers in a model's work, and recompute them exactly.

`16 - 3 - 4 = 9`, `9 \times 2 = 18`, `\frac{1}{2} \cdot 60 = 30` are equations; `x + 3 = 8`, `2
hours = 120 minutes` are not, and are skipped: a check with false alarms would send good answers to
the expensive model. So text that can't be read for certain does not count as an equation.

Three habits of writing count as true: a rounded decimal (`10 / 3 = 3.33`), a running chain (`5 + 3
= 8 + 2 = 10`), and a result in percent (`12 / 48 * 100 = 25%`). A dash before a computation may be
a bullet or follow a label (`Step 1 - 5 + 3 = 8`): the equation is false only if it is false both
with and without that text. A remainder, or a whole number of things (`100 / 3 = 33 full boxes`),
claims no equality.

Measured on the 8,792 reference solutions of GSM8K (which are right, except for a few slips of their
authors): see `tests/agents/test_verification.py`.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from fractions import Fraction

from loopline.agents.arithmetic import ExpressionError, evaluate, format_number
from loopline.agents.call_markup import strip_calls

MAX_TEXT_CHARS = 100_000
MAX_EQUATIONS = 200
_MAX_SIDE_CHARS = 200
"""A longer side is prose with numbers in it."""


@dataclass(frozen=True, slots=True)
class Equation:
    """One equation `left = right` as found, and the exact value of its left side."""

    left: str
    right: str
    exact: Fraction
    holds: bool

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


_LATEX = (
    (re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox)\s*\{[^{}]*\}"), " units "),
    (re.compile(r"\\(?:times|cdot|ast)(?![A-Za-z])"), "*"),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
    (re.compile(r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"((\1)/(\2))"),
    (re.compile(r"\\f?boxed\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\(?:left|right)(?![A-Za-z])"), ""),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"(?<=[0-9])\\[,!]\s?(?=[0-9]{3})"), ""),
    (re.compile(r"\\[,;:! ]|\\quad|~"), " "),
    (re.compile(r"\\[()\[\]]"), "\n"),
    (re.compile(r"\\([$%])"), r"\1"),
    (re.compile(r"\*\*(?![0-9 (])|(?<![0-9) ])\*\*"), " "),  # bold in Markdown
    (re.compile(r"[$€£¥]"), " "),
    (re.compile(r"&"), ""),
    (re.compile(r"(?<=[0-9)%])(\s*)[xX](?=\s*[0-9(.])"), r"\1*"),
)
_EXPRESSION_CHARS = frozenset("0123456789.,()+-*/%^×÷−–·⋅ \t")
_OPERATORS = frozenset("+-*/%^×÷−–·⋅")
_JOINED_BEFORE = re.compile(
    r"(?:\b(?:x|times|and|of|by|plus|minus|over)|[.,][0-9]*)\s*\Z", re.IGNORECASE
)
_JOINED_AFTER = re.compile(r"\s*(?:and|to|or|x|times|of)\s+[0-9(.]", re.IGNORECASE)
"""Words that make the adjacent numbers part of something larger: `12 x 1 and 1/4 = 15`."""
_STACKED = re.compile(r"/[^-+*()]*/")
"""`60 / 3/4`: the order of the divisions is not written anywhere."""
_EQUALS = re.compile(r"(?<![<>=!:≠~])=(?![=>])")
_BULLET = re.compile(r"^\s*[*•]\s+")
_LABEL = re.compile(r"(?P<number>\(?[0-9]{1,2}\)?\s*)?[-–−]\s+")
"""A dash as a bullet, or between a step's number and its computation; perhaps a minus sign."""
_REMAINDER = re.compile(
    r"[\s,(]*(?:(?:with\s+)?(?:an?\s+)?rem(?:ainder|\.|\b)|r\s*[0-9])", re.IGNORECASE
)
_OF_THINGS = re.compile(
    r"\s+(?!(?:so|and|but|or|then|which|because|since|as|thus|hence|therefore)\b)[A-Za-z]"
    r"|[\s,(]*(?:with\b.{0,80}?\bleft\b|round|approx)",
    re.IGNORECASE,
)
"""Text after a quotient that was rounded to a whole number: "33 full boxes", "3, with 2 left"."""


def equations(text: str) -> list[Equation]:
    """Every equation between plain numbers in a model's text, in order; at most 200."""
    text = strip_calls(text)[:MAX_TEXT_CHARS]
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    results: list[Equation] = []
    for line in text.splitlines():
        sides = _EQUALS.split(_BULLET.sub("", line))
        for left, right in itertools.pairwise(sides):
            equation = _equation(left, right)
            if equation is not None:
                results.append(equation)
                if len(results) == MAX_EQUATIONS:
                    return results
    return results


def _equation(before: str, after: str) -> Equation | None:
    left, right = _left_side(before), _right_side(after)
    if left is None or right is None or not (_is_computation(left) or _is_computation(right)):
        return None
    if _STACKED.search(left) or _STACKED.search(right):
        return None
    if "%" in left + right and any(sign in left + right for sign in "+-−–"):
        # "80 - 20% = 64" means 20 % of the 80; a calculator computes something else.
        return None
    equation = _parse_equation(left, right)
    if equation is None or equation.holds:
        return equation
    label = _LABEL.match(left)
    unlabelled = _parse_equation(left[label.end() :], right) if label else None
    if label and unlabelled and (_is_computation(unlabelled.left) or _is_computation(right)):
        # Without a number, it is a bullet rather than a sign, so it is quoted.
        equation = unlabelled if unlabelled.holds or not label["number"] else equation
    rest = after.lstrip()[len(right) :]
    if not equation.holds and (_REMAINDER.match(rest) or _may_be_rounded_quotient(equation, rest)):
        return None
    return equation


def _parse_equation(left: str, right: str) -> Equation | None:
    try:
        exact, claimed = evaluate(left), evaluate(right)
    except ExpressionError:
        return None
    holds = (
        exact == claimed
        or _holds_rounded(exact, claimed, right)
        or _is_truncated_decimal(exact, right)
        or _holds_in_percent(exact, claimed, left, right)
    )
    return Equation(left, right, exact, holds)


def _may_be_rounded_quotient(equation: Equation, rest: str) -> bool:
    """Whether it may be a quotient of indivisible things."""
    divides = any(sign in equation.left for sign in "/÷")
    whole = equation.right.replace(",", "")
    if not divides or not whole.isdecimal() or _OF_THINGS.match(rest) is None:
        return False
    return abs(equation.exact - evaluate(equation.right)) < 1


_LIST_MARK = re.compile(r",\s|\.\s")


def _left_side(text: str) -> str | None:
    """The expression that ends the text, or `None` if it may be part of a larger one."""
    start = len(text)
    while start > 0 and text[start - 1] in _EXPRESSION_CHARS:
        start -= 1
        if len(text) - start > _MAX_SIDE_CHARS:
            return None
    side, head = text[start:], text[:start]
    # "for 3, 4 + 5" is a list before a sum, and "2. 4 + 5" a numbered line.
    side = _LIST_MARK.split(side)[-1]
    stripped = side.strip()
    if not stripped or not any(char.isdigit() for char in stripped):
        return None
    if head and side == text[start:]:
        if stripped[0] in _OPERATORS:
            return None  # the rest of "x - 5" or "12 eggs - 3"
        if _JOINED_BEFORE.search(head[-40:]):
            return None
        if not side[0].isspace() and head[-1] not in ":>\"'":
            return None  # attached to other text, as in "f(2)" or "x2"
        if head[-1] == ":" and head[-2:-1].isdigit():
            return None  # a time of day
        if head.rstrip()[-1:].isalpha() and not _is_computation(stripped):
            return None  # a name with a number, as in "Week 2 = 35 + 35"
    return stripped


def _right_side(text: str) -> str | None:
    """The expression that starts the text, or `None` if it continues with something unknown."""
    end = 0
    while end < len(text) and text[end] in _EXPRESSION_CHARS:
        end += 1
        if end > _MAX_SIDE_CHARS:
            return None
    side, tail = text[:end], text[end:]
    side = _LIST_MARK.split(side)[0]
    if side == text[:end]:
        if _JOINED_AFTER.match(tail):
            return None
        if tail and not side[-1:].isspace() and (tail[0].isalpha() or tail[0] in "\\_{["):
            return None  # "5x"
        side = side.rstrip(" \t(.,")
        if side and side[-1] in _OPERATORS - {"%"}:
            return None  # "8 + x"
    stripped = side.strip().rstrip(".,")
    return stripped if any(char.isdigit() for char in stripped) else None


def _is_computation(side: str) -> bool:
    return any(char in _OPERATORS for char in side.lstrip("-−–+"))


_DECIMAL = re.compile(r"-?[0-9,]*\.([0-9]+)(%?)")


def _holds_rounded(exact: Fraction, claimed: Fraction, right: str) -> bool:
    decimals = _DECIMAL.fullmatch(right)
    if decimals is None:
        return False
    last_place = Fraction(1, 10 ** len(decimals[1]) * (100 if decimals[2] else 1))
    return abs(exact - claimed) <= last_place / 2


def _holds_in_percent(exact: Fraction, claimed: Fraction, left: str, right: str) -> bool:
    """`12 / 48 * 100 = 25%`, the usual way to write it."""
    return right.endswith("%") and "%" not in left and exact == claimed * 100


_FIRST_NUMBER = re.compile(r"-?[0-9][0-9,]*(?:\.[0-9]+)?")


def _is_truncated_decimal(exact: Fraction, right: str) -> bool:
    first = _FIRST_NUMBER.match(right)
    if first is None or first.end() == len(right):
        return False
    try:
        return evaluate(first.group()) == exact
    except ExpressionError:
        return False


def first_wrong(text: str) -> str | None:
    """The first false equation, with its true value, or `None`."""
    for equation in equations(text):
        if not equation.holds:
            return f"{equation} is wrong: the left side is {format_number(equation.exact)}"
    return None
