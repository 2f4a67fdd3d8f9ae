"""Signs in a plain text that its answer may be wrong: how it ends, whether it contradicts itself,
which words of the question it ignores, and which parts of the question its answer is based on."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from fractions import Fraction

from loopline.agents.router.numbers import (
    Calculation,
    StatedNumber,
    contradicted_marks,
    numbers_in,
)

_NUMBER = r"-?[0-9][0-9,]{0,20}(?:\.[0-9]{1,20})?"
_STATEMENTS = (
    re.compile(rf"#{{4}}[ \t]{{0,3}}[$]?({_NUMBER})"),
    re.compile(rf"\\boxed\{{[ \t]{{0,3}}\\?[$]?({_NUMBER})"),
    re.compile(rf"\banswer(?:[ \t]is|:)[ \t*]{{0,5}}[$]?({_NUMBER})", re.IGNORECASE),
)
_NEXT_QUESTION = re.compile(
    r"^[ \t*#]{0,9}(?:question|problem|q|human|user)[ \t]?[0-9]{0,4}[ \t]?:",
    re.IGNORECASE | re.MULTILINE,
)
_ASKED_NOUN = re.compile(r"\bhow many (?:more |fewer |less )?([a-z]{3,20})\b", re.IGNORECASE)
_ASKS_PERCENT = re.compile(r"\bwhat (?:percent|percentage)|\bpercentage of\b", re.IGNORECASE)
_ASKS_MONEY = re.compile(
    r"\bhow much (?:money|does .{1,40} (?:cost|pay|make|earn|spend)|did .{1,40} (?:cost|pay|make|"
    r"earn|spend))|\bin dollars\b|\bhow many dollars\b",
    re.IGNORECASE,
)
_MONEY = re.compile(r"[$€£]|\bdollars?\b|\bcents?\b", re.IGNORECASE)
_END = 200
"""Number of characters at the end of a text in which it states the unit of its answer."""

_CUES: tuple[tuple[str, re.Pattern[str], frozenset[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE), frozenset(operators))
    for name, pattern, operators in (
        ("left", r"\bleft\b|\bremain|\bthe rest\b", "-"),
        ("times", r"\btimes as\b|\btwice\b|\bdouble|\btriple", "*/"),
        ("average", r"\baverage\b", "/"),
        ("half", r"\bhalf\b|\bthird of\b|\bquarter of\b", "/*"),
        ("percent", r"%|\bpercent", "*/"),
        ("total", r"\btotal\b|\baltogether\b|\bin all\b|\bcombined\b", "+*"),
        ("difference", r"\bmore than\b|\bless than\b|\bfewer\b|\bolder\b|\byounger\b", "+-"),
        ("each", r"\beach\b|\bper\b|\bevery\b", "*/"),
    )
)
"""Topics of a question, and operators of which it usually needs one."""

_UNIT_PAIRS: tuple[tuple[re.Pattern[str], re.Pattern[str], int], ...] = tuple(
    (re.compile(small, re.IGNORECASE), re.compile(large, re.IGNORECASE), factor)
    for small, large, factor in (
        (r"\bdays?\b|\bdaily\b", r"\bweeks?\b|\bweekly\b", 7),
        (r"\bhours?\b", r"\bdays?\b|\bdaily\b", 24),
        (r"\bminutes?\b", r"\bhours?\b", 60),
        (r"\bseconds?\b", r"\bminutes?\b", 60),
        (r"\bmonths?\b|\bmonthly\b", r"\byears?\b|\byearly\b|\bannual", 12),
        (r"\bweeks?\b|\bweekly\b", r"\byears?\b|\byearly\b|\bannual", 52),
        (r"\binch(?:es)?\b", r"\bfeet\b|\bfoot\b", 12),
        (r"\bcents?\b", r"\bdollars?\b|\$", 100),
        (r"\bdozens?\b", r"", 12),
    )
)
_REFUSES = re.compile(
    r"\b(?:not enough information|cannot be (?:determined|answered)|can't be determined|"
    r"impossible to)\b",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"\blet(?:'s)? (?:call |say )?[a-z]\b|\bsolve for\b", re.IGNORECASE)


def sign_features(
    question: str,
    text: str,
    visible: str,
    steps: Sequence[Calculation],
    stated: StatedNumber,
    numbers: Collection[Fraction],
) -> dict[str, float]:
    """Features by name. `visible`: the text without a calculator's marks; `numbers`: those of the
    question."""
    answer = stated.value
    end = visible[-_END:].lower()
    written = numbers_in(visible)
    values = {match[1].rstrip(",.") for pattern in _STATEMENTS for match in pattern.finditer(text)}
    asks_percent = answer is not None and _ASKS_PERCENT.search(question) is not None
    noun = _ASKED_NOUN.search(question)
    stem = noun[1].lower().rstrip("s") if noun else ""
    size = Fraction(0) if answer is None else answer
    return {
        "sign.cut_off": float(_is_cut_off(visible, stated)),
        "sign.goes_on": float(min(3, len(_NEXT_QUESTION.findall(text)))),
        "sign.stated_answers": float(min(5, len(values))),
        "sign.last_number_differs": float(
            bool(written) and answer is not None and written[-1] != answer
        ),
        "sign.contradicted_marks": float(contradicted_marks(text)),
        "sign.negative": float(size < 0),
        "sign.zero": float(answer == 0),
        "sign.percent_above_100": float(asks_percent and size > 100),
        "sign.percent_as_share": float(asks_percent and 0 < size < 1),
        "sign.asked_noun_at_end": float(bool(stem) and stem in end),
        "sign.asked_noun_unsaid": float(bool(stem) and stem not in visible.lower()),
        "sign.money_unsaid": float(
            _ASKS_MONEY.search(question) is not None and _MONEY.search(visible) is None
        ),
        "sign.refuses": float(_REFUSES.search(visible) is not None),
        "sign.unknowns": float(min(3, len(_UNKNOWN.findall(visible)))),
        "sign.rounds": float(min(3, visible.lower().count("round"))),
        "sign.code": float("```" in text or "def " in text),
        "sign.other_script": sum(not char.isascii() for char in visible) / max(1, len(visible)),
        **_cue_features(question, steps),
        **_unit_features(question, steps),
        **_support_features(steps, answer, numbers),
    }


def _is_cut_off(visible: str, stated: StatedNumber) -> bool:
    last = visible.rstrip()[-1:]
    if last in tuple("=+-*/×÷,:(<"):
        return True
    return last.isalpha() and stated.place in (None, "text")


def _cue_features(question: str, steps: Sequence[Calculation]) -> dict[str, float]:
    used = {operator for step in steps for operator in step.operators}
    missing = {
        f"sign.{name}_without_operator": float(
            bool(steps) and pattern.search(question) is not None and not used & operators
        )
        for name, pattern, operators in _CUES
    }
    return {**missing, "sign.cues_without_operator": sum(missing.values())}


def _unit_features(question: str, steps: Sequence[Calculation]) -> dict[str, float]:
    operands = {abs(operand) for step in steps for operand in step.operands}
    factors = [
        factor
        for small, large, factor in _UNIT_PAIRS
        if small.search(question) and large.search(question)
    ]
    converted = sum(factor in operands for factor in factors)
    return {
        "sign.unit_pairs": float(len(factors)),
        "sign.units_converted": float(converted),
        "sign.units_unconverted": float(len(factors) - converted),
    }


def _support_features(
    steps: Sequence[Calculation], answer: Fraction | None, numbers: Collection[Fraction]
) -> dict[str, float]:
    """Basis of the answer: the steps that lead to it, from the last one back, and the question's
    numbers in them."""
    needed = set() if answer is None else {abs(answer)}
    leading = 0
    for step in reversed(steps):
        if abs(step.result) in needed:
            leading += 1
            needed |= {abs(operand) for operand in step.operands}
    needed_count = sum(number in needed for number in numbers)
    return {
        "sign.leading_steps": float(leading),
        "sign.stray_steps": float(len(steps) - leading),
        "sign.leading_share": leading / max(1, len(steps)),
        "sign.resting_numbers": float(needed_count),
        "sign.resting_share": needed_count / max(1, len(numbers)),
        "sign.left_out_numbers": float(len(numbers) - needed_count),
        "sign.unsupported": float(bool(steps) and answer is not None and leading == 0),
    }
