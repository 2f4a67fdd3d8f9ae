r"""Numbers in the notation of a final result: `315`, `-7/2`, `3 \frac{1}{2}`, `0.\overline{6}`,
`1.5 \times 10^{8}`, `10 \%`, `5 km`, also after a name and its calculation (`x = 9 \cdot 2 = 18`).

An expression that is still to be worked out is not such a number: a sum, a product, a quotient that
is a whole number, a power, a root, a number negated twice. Neither are several numbers, or a number
with words that are not a unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from loopline.agents.answers import MAX_NUMBER_CHARS, parse_number
from loopline.agents.arithmetic import ExpressionError, evaluate
from loopline.workers.judging.units import quantity, same_measure

_MAX_EXPONENT = 400


@dataclass(frozen=True)
class WrittenNumber:
    """A number and the text around it."""

    value: Fraction
    percent: bool
    around: str
    """Unit and currency around the number."""

    @property
    def readings(self) -> frozenset[Fraction]:
        """Possible values: 50 % is one half; a whole number of percent also answers "how many"."""
        if not self.percent:
            return frozenset({self.value})
        whole = {self.value} if self.value.denominator == 1 else set[Fraction]()
        return frozenset({self.value / 100, *whole})


_RELATION = re.compile(r"=|≈|\\approx(?![A-Za-z])|\\simeq(?![A-Za-z])")
_LAYOUT = re.compile(
    r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[()\[\]]|(?<!\\)\$(?!\s{0,3}[0-9])"
)
_NEGATIVE_FRACTION = re.compile(
    r"(?P<sign>[-−]?)\s?(?P<frac>\\[dtc]?frac)\s?\{\s?(?P<up>[-−]?)\s?(?P<top>[0-9]+)\s?\}"
    r"\s?\{\s?(?P<down>[-−]?)\s?(?P<bottom>[0-9]+)\s?\}"
)
_PERIODIC = re.compile(
    r"(?P<sign>[-−+]?)\s?(?P<whole>[0-9]*)\.(?P<places>[0-9]*)\s?"
    r"(?:\\(?:overline|bar|dot)\s?\{?\s?(?P<period>[0-9]+)\s?\}?|\((?P<round>[0-9]+)\))"
)
_SCIENTIFIC = re.compile(
    r"(?P<sign>[-−+]?)\s?(?:(?P<mantissa>[0-9]+(?:\.[0-9]+)?)\s?"
    r"(?:\\(?:times|cdot)(?![A-Za-z])|[×·*⋅])\s?)?10\s?(?:\^|\*\*)\s?(?:\{\s?(?P<braced>[-−+]?[0-9]{1,3})\s?\}"
    r"|(?P<bare>[-−]?[0-9]))"
    r"|(?P<esign>[-−+]?)(?P<emantissa>[0-9](?:\.[0-9]+)?)[eE](?P<eexponent>[-+]?[0-9]{1,3})"
)
PREFIX = re.compile(
    r"\s{0,9}(?:\\(?:text|textbf|mathrm)\s?\{)?\s{0,9}(?:(?:so|thus|hence|therefore|the|final|answer|"
    r"result|value|total|is|equals)(?![A-Za-z])[\s:,]{0,9}){1,8}\}?[\s:]{0,9}(?=[$\\({0-9.+−-])",
    re.IGNORECASE,
)
"""Words before an answer that only introduce it."""
_SEVERAL = re.compile(
    r"(?<![A-Za-z])(?:or|and)(?![A-Za-z])|[;&]|,(?![0-9]{3}(?![0-9]))"
    r"|\\(?:to|vert|mid|implies|[lL]?ongrightarrow|[rR]ightarrow)(?![A-Za-z])"
)
_TWICE_NEGATED = re.compile(r"^[\s$(]{0,9}[-−]\s?\(?\s?[-−]")
_DIVIDED = re.compile(r"/|\\[dtc]?frac")
_SET_APART = re.compile(r"[0-9)}]\s{1,9}\\?[^\W\d_]")
"""A unit after a space: glued to its number, a letter may be a variable."""
_PERIOD_CHARS = 60
_LATEX_SIGNS = (
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])"), "*"),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
)


def written_number(text: str) -> WrittenNumber | None:
    """The single number that a text states, or the last side of a chain of equal values; None for
    any other text."""
    if len(text) > MAX_NUMBER_CHARS:
        return None
    text = text.replace("\\!", "")
    sides = [side.strip() for side in _RELATION.split(text)]
    prefix = PREFIX.match(sides[-1]) if len(sides) == 1 else None
    last = _single_number(sides[-1][prefix.end() :] if prefix else sides[-1])
    if last is None or not all(_may_equal(side, last) for side in sides[:-1]):
        return None
    return last


def written_numbers_agree(answer: str, gold: str) -> bool:
    """Whether both are the same number, in the same unit if both have one."""
    measured = quantities_agree(answer, gold)
    if measured is not None:
        return measured
    answer_number, gold_number = written_number(answer), written_number(gold)
    if answer_number is None or gold_number is None:
        return False
    if answer_number.percent == gold_number.percent:
        measured = same_measure(
            answer_number.value, answer_number.around, gold_number.value, gold_number.around
        )
        return answer_number.value == gold_number.value if measured is None else measured
    return bool(answer_number.readings & gold_number.readings)


def quantities_agree(answer: str, gold: str) -> bool | None:
    """Whether two numbers with listed units are the same quantity; None if one of them has no such
    unit, or words around it."""
    first, second = quantity(answer), quantity(gold)
    if first is None or second is None:
        return None
    value, other_value = written_number(first[0]), written_number(second[0])
    if value is None or other_value is None:
        return None
    return same_measure(value.value, first[1], other_value.value, second[1])


def _may_equal(side: str, last: WrittenNumber) -> bool:
    """Whether a side of a chain may equal the last number."""
    if not side:
        return True
    value = _single_number(side)
    if value is not None:
        return bool(value.readings & last.readings)
    if _SEVERAL.search(side) or side.count("|") % 2:
        return False
    calculation = _LAYOUT.sub("", side)
    for pattern, sign in _LATEX_SIGNS:
        calculation = pattern.sub(sign, calculation)
    try:
        return evaluate(calculation) in last.readings
    except ExpressionError:
        # A name, or an expression whose value the answer states.
        return re.search(r"[A-Za-z\\]", side) is not None


def _single_number(text: str) -> WrittenNumber | None:
    if _TWICE_NEGATED.match(text):
        return None
    text = _NEGATIVE_FRACTION.sub(_collapse_signs, text)
    bare = _LAYOUT.sub("", text).strip().removesuffix(".").strip()
    exact = _periodic(bare) or _scientific(bare)
    if exact is not None:
        return WrittenNumber(exact, percent=False, around="")
    number = parse_number(text)
    if number is None:
        measured = quantity(text) if _SET_APART.search(text) else None
        if measured is None or (bare_number := _single_number(measured[0])) is None:
            return None
        return replace(bare_number, around=measured[1])
    if _DIVIDED.search(bare) and _is_quotient(bare) and number.value.denominator == 1:
        return None
    return WrittenNumber(number.value, number.percent, _normalize_surroundings(text))


def _is_quotient(text: str) -> bool:
    r"""Whether a number is divided, rather than followed by a unit with a slash (`5 km/h`)."""
    return "frac" in text or re.search(r"[0-9]\s?/\s?[0-9]", text) is not None


def _normalize_surroundings(text: str) -> str:
    return re.sub(r"[-+−]?[0-9][0-9,.]*(?:\s?/\s?[0-9]+)?", " ", text, count=1)


def _collapse_signs(match: re.Match[str]) -> str:
    minus = sum(bool(match[name]) for name in ("sign", "up", "down"))
    if minus > 1:
        return match[0]
    sign = "-" if minus else ""
    return f"{sign}{match['frac']}{{{match['top']}}}{{{match['bottom']}}}"


def _periodic(text: str) -> Fraction | None:
    match = _PERIODIC.fullmatch(text)
    if match is None or len(text) > _PERIOD_CHARS:
        return None
    places, period = match["places"], match["period"] or match["round"]
    scale = 10 ** len(places)
    value = Fraction(int(f"{match['whole']}{places}" or "0"), scale)
    value += Fraction(int(period), (10 ** len(period) - 1) * scale)
    return -value if match["sign"] in ("-", "−") else value


def _scientific(text: str) -> Fraction | None:
    """A power of ten and its factor in usual notation: a factor from 1 to 10, or exponents in steps
    of three. `315 × 10^0` and `10^3` are still to be worked out."""
    match = _SCIENTIFIC.fullmatch(text)
    if match is None:
        return None
    exponent = int((match["braced"] or match["bare"] or match["eexponent"]).replace("−", "-"))
    if abs(exponent) > _MAX_EXPONENT:
        return None
    mantissa = Fraction(match["mantissa"] or match["emantissa"] or 1)
    if match["mantissa"] or match["emantissa"]:
        if exponent == 0 or not (1 <= mantissa < 10 or (exponent % 3 == 0 and mantissa < 1000)):
            return None
    elif exponent >= 0:
        return None
    value = mantissa * Fraction(10) ** exponent
    return -value if (match["sign"] or match["esign"]) in ("-", "−") else value
