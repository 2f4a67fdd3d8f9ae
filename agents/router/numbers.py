"""The numbers and the calculations in a question and in its answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from loopline.agents.answers import parse_number
from loopline.agents.arithmetic import ExpressionError, evaluate
from loopline.agents.equations import equations
from loopline.agents.router.symbols import symbolic
from loopline.agents.stated_answers import Place, statements

_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])-?\$?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,30})(?:\.[0-9]{1,30})?"
)
_WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20,
    "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
    "hundred": 100, "thousand": 1000, "dozen": 12, "half": 2, "twice": 2, "double": 2, "triple": 3,
    "third": 3, "quarter": 4, "pair": 2, "once": 1, "thrice": 3, "tripled": 3, "doubled": 2,
}  # fmt: skip
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})s?\b", re.IGNORECASE)
_ANNOTATION = re.compile(r"<<([^<>=\n]{1,200})=([^<>=\n]{1,60})>>")
"""A calculator's mark, as in the solutions of GSM8K: `16 - 3 = <<16-3=13>>13`."""
_MARK_AND_NUMBER = re.compile(
    r"<<[^<>=\n]{1,200}=([^<>=\n]{1,60})>>[ \t]{0,2}[$]?"
    r"(-?[0-9][0-9,]{0,20}(?:\.[0-9]{1,20})?)"
)
_ANY_ANNOTATION = re.compile(r"<<[^<>\n]{0,300}>>")
_OPERATOR = re.compile(r"(?<=[0-9) %])\s*[-+*/×÷−x]\s*(?=[$0-9(.])")
_UNIVERSAL = frozenset(map(Fraction, (0, 1, 2, 7, 10, 12, 24, 30, 52, 60, 100, 365, 1000)))
"""Numbers that a calculation may introduce: days, months, minutes, percent."""


def numbers_in(text: str) -> list[Fraction]:
    """The plain numbers of a text, in order, without currency signs and commas."""
    return [
        Fraction(match[0].replace(",", "").replace("$", "")) for match in _NUMBER.finditer(text)
    ]


def number_words_in(text: str) -> list[Fraction]:
    """Values of the number words in a text: three, twice, half, a dozen."""
    values = (match[0].lower() for match in _WORD.finditer(text))
    return [Fraction(_WORDS.get(word, _WORDS.get(word.removesuffix("s"), 0))) for word in values]


def without_annotations(text: str) -> str:
    """The text as people read it, without a calculator's marks."""
    return _ANY_ANNOTATION.sub("", text)


@dataclass(frozen=True, slots=True)
class Calculation:
    """One step of the work: `left = result`."""

    left: str
    result: Fraction
    holds: bool

    @property
    def operands(self) -> list[Fraction]:
        return numbers_in(_OPERATOR.sub(" ~ ", self.left).replace("(", " "))

    @property
    def operators(self) -> str:
        """The operators, in order, as `+-*/`."""
        signs = (match[0].strip() for match in _OPERATOR.finditer(self.left))
        return "".join(sign.translate(_SIGNS) for sign in signs)


_SIGNS = str.maketrans({"×": "*", "x": "*", "÷": "/", "−": "-"})


def calculations(text: str) -> tuple[list[Calculation], int]:
    """The steps of the work, in order, and how many of them a calculator's marks show. If there are
    marks, they are the steps; else the steps are the equations that `loopline.agents.equations`
    finds, and calculations in words."""
    marked = _marked(text)
    if marked:
        return marked, len(marked)
    plain: list[Calculation] = []
    for equation in equations(symbolic(without_annotations(text))):
        try:
            result = evaluate(equation.right)
        except ExpressionError:
            result = equation.exact
        plain.append(Calculation(equation.left, result, equation.holds))
    return plain, 0


def wrong_equations(text: str) -> int:
    """False equations in the text, without its marks."""
    return sum(not equation.holds for equation in equations(without_annotations(text)))


def contradicted_marks(text: str) -> int:
    """Marks whose result is not the number that follows them."""
    count = 0
    for match in _MARK_AND_NUMBER.finditer(text):
        try:
            count += evaluate(match[1]) != evaluate(match[2].rstrip(","))
        except ExpressionError:
            continue
    return count


def _marked(text: str) -> list[Calculation]:
    steps: list[Calculation] = []
    for match in _ANNOTATION.finditer(text):
        try:
            exact, claimed = evaluate(match[1]), evaluate(match[2])
        except ExpressionError:
            continue
        holds = abs(exact - claimed) <= max(Fraction(1, 100), abs(exact) / 10_000)
        steps.append(Calculation(match[1], claimed, holds))
    return steps


def unexplained(steps: list[Calculation], stated_values: set[Fraction]) -> int:
    """Operands that are neither in the question nor a result of an earlier step, nor one of the
    numbers that any calculation may use."""
    available, count = set(stated_values), 0
    for step in steps:
        for operand in step.operands:
            count += not _explains(available, operand)
        available.add(step.result)
    return count


def unused_results(steps: list[Calculation], answer: Fraction | None) -> int:
    """Results that no later step uses and that are not the answer."""
    count = 0
    for at, step in enumerate(steps):
        later = {abs(operand) for following in steps[at + 1 :] for operand in following.operands}
        count += abs(step.result) not in later and step.result != answer
    return count


def _explains(available: set[Fraction], operand: Fraction) -> bool:
    value = abs(operand)
    if value in _UNIVERSAL or value in available:
        return True
    # A share for a percentage, and the remainder; cents for dollars.
    return any(
        form in available
        for form in (value * 100, value / 100, 100 - value, (1 - value) * 100, (value - 1) * 100)
    )


@dataclass(frozen=True, slots=True)
class StatedNumber:
    """The number that a text answers with, and its position."""

    value: Fraction | None
    place: Place | None


def stated_number(text: str) -> StatedNumber:
    """The answer of a text as a number: its box, its `####`, the value that it calls the answer,
    else the last number in it. `None` if there is none."""
    for statement in statements(without_annotations(text)):
        number = parse_number(statement.text.strip("*_` \n"))
        if number is not None:
            return StatedNumber(number.value, statement.place)
        if statement.place == "box":
            return StatedNumber(None, "box")
        values = numbers_in(statement.text)
        if values:
            return StatedNumber(values[-1], statement.place)
    return StatedNumber(None, None)
