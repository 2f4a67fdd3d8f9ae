"""Exact rational arithmetic on a model's text. Never `eval`.

The grammar is that of a pocket calculator with Python's precedence:

    sum     := product (("+" | "-") product)*
    product := signed (("*" | "/" | "//" | "%") signed)*
    signed  := ("+" | "-")* power
    power   := percent (("**" | "^") signed)?          right-associative
    percent := atom "%"*                               12% is 12/100
    atom    := number | "(" sum ")"

Hostile input is the normal case, so every limit below is checked before the work that it bounds: an
expression within the limits takes well under a millisecond per operation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARS = 2_000
"""Longest expression in characters; models' longest useful one in the data sets has about 200."""
MAX_DEPTH = 50
"""Nested parentheses and powers. Six frames of Python's stack each."""
MAX_BITS = 2_048
"""Maximum size of any intermediate numerator or denominator: about 616 decimal digits."""
MAX_EXPONENT = 1_000
MAX_DECIMAL_PLACES = 12
"""A terminating decimal with more places is shown as a fraction: both are exact, it is shorter."""


class ExpressionError(ValueError):
    """Text that is not an arithmetic expression, or one that is too large. The message, for the
    model, states the error and its position."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """`number`, or the operator itself; `end` after the last one."""
    value: Fraction
    at: int
    attached: bool
    """Whether there is no white space before the token."""


_LOOKALIKES = str.maketrans(
    {
        **dict.fromkeys("×✕✖⋅·∙∗＊", "*"),
        **dict.fromkeys("÷∕⁄／", "/"),
        **dict.fromkeys("−–—‒﹣－", "-"),
        **dict.fromkeys("＋﹢", "+"),
        **dict.fromkeys("％﹪", "%"),
        "（": "(",
        "）": ")",
        # A currency sign does not affect the value; replaced by a space, it can't join two numbers.
        **dict.fromkeys("$€£¥", " "),
    }
)

_NUMBER = re.compile(
    r"(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)?(?:\.(?P<decimals>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+))?"
)
_OPERATOR = re.compile(r"\*\*|//|[-+*/%^()]")
_SPACE = re.compile(r"\s*")


def evaluate(expression: str) -> Fraction:
    """The exact value. Raises `ExpressionError`."""
    if len(expression) > MAX_CHARS:
        raise ExpressionError(
            f"the expression has {len(expression)} characters, at most {MAX_CHARS} are allowed"
        )
    return _Parser(_tokens(expression.translate(_LOOKALIKES))).whole()


def format_number(value: Fraction) -> str:
    """An integer, else the exact decimal if it terminates within 12 places, else `a/b`."""
    if value.denominator == 1:
        return str(value.numerator)
    places = _decimal_places(value.denominator)
    if places is None:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}"


def _decimal_places(denominator: int) -> int | None:
    # 1/(2^a·5^b) terminates after max(a, b) places; both are bounded, so the loops are too.
    twos = fives = 0
    while denominator % 2 == 0 and twos <= MAX_DECIMAL_PLACES:
        denominator //= 2
        twos += 1
    while denominator % 5 == 0 and fives <= MAX_DECIMAL_PLACES:
        denominator //= 5
        fives += 1
    places = max(twos, fives)
    return places if denominator == 1 and places <= MAX_DECIMAL_PLACES else None


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while True:
        start = at
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        attached = at == start
        if at == len(text):
            tokens.append(_Token("end", Fraction(0), at, attached))
            return tokens
        number = _NUMBER.match(text, at)
        if number and (number["whole"] or number["decimals"]):
            tokens.append(_Token("number", _number(number, at), at, attached))
            at = number.end()
            continue
        operator = _OPERATOR.match(text, at)
        if operator is None:
            raise _unexpected_token_error(text, at)
        sign = operator.group()
        tokens.append(_Token("**" if sign == "^" else sign, Fraction(0), at, attached))
        at = operator.end()


def _number(match: re.Match[str], at: int) -> Fraction:
    whole = (match["whole"] or "").replace(",", "")
    decimals = match["decimals"] or ""
    exponent = match["exponent"] or "0"
    if len(exponent) > 4:
        raise ExpressionError(f"the number at character {at + 1} is too large or too small")
    value = Fraction(int(whole + decimals), 10 ** len(decimals))
    return _check_size(value * Fraction(10) ** int(exponent))


def _unexpected_token_error(text: str, at: int) -> ExpressionError:
    excerpt = text[at : at + 12].split()[0]
    if excerpt.startswith(","):
        return ExpressionError(
            f"unexpected comma at character {at + 1}: commas may only separate groups of three "
            "digits, as in 1,234"
        )
    return ExpressionError(
        f"unexpected {excerpt!r} at character {at + 1}: only numbers, + - * / // % ** and "
        "parentheses are understood"
    )


def _check_size(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ExpressionError(f"a number on the way is too large (more than {MAX_BITS} bits)")
    return value


class _Parser:
    """Evaluates by recursive descent; each level of the grammar is one method."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def whole(self) -> Fraction:
        if self._token.kind == "end":
            raise ExpressionError("the expression is empty")
        value = self._sum()
        token = self._token
        if token.kind == ")":
            raise ExpressionError(f"a closing parenthesis too many at character {token.at + 1}")
        if token.kind != "end":
            raise ExpressionError(f"an operator is missing before character {token.at + 1}")
        return value

    def _sum(self) -> Fraction:
        value = self._product()
        while self._token.kind in ("+", "-"):
            sign = self._take().kind
            term = self._product()
            value = _check_size(value + term if sign == "+" else value - term)
        return value

    def _product(self) -> Fraction:
        value = self._unary()
        while self._token.kind in ("*", "/", "//", "%"):
            operator = self._take()
            value = _check_size(_multiply(operator, value, self._unary()))
        return value

    def _unary(self) -> Fraction:
        negative = False
        while self._token.kind in ("+", "-"):
            negative ^= self._take().kind == "-"
        value = self._power()
        return -value if negative else value

    def _power(self) -> Fraction:
        base = self._percent()
        if self._token.kind != "**":
            return base
        operator = self._take()
        self._check_depth(operator)
        exponent = self._unary()
        self._depth -= 1
        return _raise_to_power(operator, base, exponent)

    def _percent(self) -> Fraction:
        value = self._atom()
        while self._token.kind == "%" and self._is_percent_sign():
            self._take()
            value = _check_size(value / 100)
        return value

    def _is_percent_sign(self) -> bool:
        """Whether this `%` ends a percentage; otherwise, it is the remainder operator."""
        sign, after = self._tokens[self._next], self._tokens[self._next + 1]
        if after.kind in ("number", "("):
            return False
        if after.kind in ("+", "-") and not sign.attached:
            raise ExpressionError(
                f"the % at character {sign.at + 1} is ambiguous: write 50% - 3 for the percentage "
                "or 50 % (-3) for the remainder"
            )
        return True

    def _atom(self) -> Fraction:
        token = self._take()
        if token.kind == "number":
            return token.value
        if token.kind == "(":
            self._check_depth(token)
            value = self._sum()
            closing = self._take() if self._token.kind == ")" else None
            if closing is None:
                raise ExpressionError(
                    f"the parenthesis opened at character {token.at + 1} is not closed"
                    if self._token.kind == "end"
                    else f"an operator is missing before character {self._token.at + 1}"
                )
            self._depth -= 1
            return value
        if token.kind == "end":
            raise ExpressionError("the expression ends where a number was expected")
        raise ExpressionError(
            f"a number was expected at character {token.at + 1}, not {token.kind!r}"
        )

    def _check_depth(self, token: _Token) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(
                f"nested more than {MAX_DEPTH} levels deep at character {token.at + 1}"
            )


def _multiply(operator: _Token, left: Fraction, right: Fraction) -> Fraction:
    if operator.kind == "*":
        return left * right
    if right == 0:
        raise ExpressionError(f"division by zero at character {operator.at + 1}")
    if operator.kind == "/":
        return left / right
    floor = left // right
    return Fraction(floor) if operator.kind == "//" else left - right * floor


def _raise_to_power(operator: _Token, base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ExpressionError(
            f"the exponent at character {operator.at + 1} is {format_number(exponent)}: only whole "
            "exponents have exact results"
        )
    power = exponent.numerator
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(power) > MAX_EXPONENT or size * abs(power) > MAX_BITS:
        raise ExpressionError(
            f"the power at character {operator.at + 1} is too large: at most {MAX_EXPONENT} as "
            f"exponent and {MAX_BITS} bits as result"
        )
    if base == 0 and power < 0:
        raise ExpressionError(f"division by zero at character {operator.at + 1}")
    return _check_size(base**power)
