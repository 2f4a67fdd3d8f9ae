r"""Compares two pieces of LaTeX by computer algebra: expressions, relations, intervals.

Equations are the same if one is a multiple of the other: `3x + 4y + 14 = 0` is `6x + 8y = -28` and
not `3x - y + 13 = 0`. Inequalities in one variable are compared as sets, and so are intervals and
unions: `x < 3` is `(-\infty, 3)`.

Only for the child of `loopline.workers.judging.math_verify`, which limits SymPy's time and memory:
any function here may raise any exception.
"""

from __future__ import annotations

import re
from typing import Any

ROUNDED_TO, DIGITS = 6, 15
"""Precision of Math-Verify's comparisons: the decimals to which a float is rounded, and the digits
that are computed."""

_IN = re.compile(r"^\s*[A-Za-z]\s*\\in(?![A-Za-z])")


def read(text: str) -> Any:
    """Parse a whole text: an expression, a relation or a set of SymPy's."""
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from sympy import Union

    text = _IN.sub("", text)
    parts = re.split(r"\\cup(?![A-Za-z])", text)
    if len(parts) > 1:
        return Union(*map(_set_of, map(read, parts)))
    parsed = latex2sympy(
        text,
        is_real=True,
        convert_degrees=False,
        normalization_config=None,
        # The radii r and R are two variables.
        conversion_config=ConversionConfig(lowercase_symbols=False),
    )
    return _with_exact_decimals(parsed)


def _with_exact_decimals(parsed: Any) -> Any:
    """A relation or a set with its decimals as fractions: as binary numbers, equal bounds
    differ."""
    from sympy import Float, Rational, Set

    if not is_relation(parsed) and not isinstance(parsed, Set):
        return parsed
    return parsed.xreplace({number: Rational(str(number)) for number in parsed.atoms(Float)})


def is_relation(answer: Any) -> bool:
    """Whether it is an equation, an inequality, or a chain of these."""
    from latex2sympy2_extended.logic import And
    from sympy.core.relational import Relational

    return isinstance(answer, And | Relational)


def compare_relations(answer: Any, wanted: Any) -> bool:
    """Whether both are equal or equivalent."""
    from latex2sympy2_extended.logic import And
    from math_verify.grader import sympy_expr_eq
    from sympy import Eq, Set
    from sympy.core.relational import Relational

    relations = (And, Relational)
    if isinstance(answer, Eq) and isinstance(wanted, Eq):
        return _same_equation(answer, wanted)
    if isinstance(answer, relations) and isinstance(wanted, relations):
        if answer.free_symbols != wanted.free_symbols:
            return False
        if len(answer.free_symbols) == 1:
            return bool(_set_of(answer) == _set_of(wanted))
        return _same_inequality(answer, wanted)
    if isinstance(answer, relations) or isinstance(wanted, relations):
        counterpart = wanted if isinstance(answer, relations) else answer
        return isinstance(counterpart, Set) and bool(_set_of(answer) == _set_of(wanted))
    return bool(sympy_expr_eq(wanted, answer, ROUNDED_TO, DIGITS))


def _set_of(expression: Any) -> Any:
    """The set of numbers that satisfy a relation in one variable, or a set itself."""
    from latex2sympy2_extended.logic import And
    from sympy import Eq, FiniteSet, Intersection, Reals, Set

    if isinstance(expression, Set):
        # Math-Verify's own sets are ordered; SymPy's can be compared.
        return FiniteSet(*expression.args) if expression.is_FiniteSet else expression
    if isinstance(expression, And):
        return Intersection(*map(_set_of, expression.args))
    if isinstance(expression, Eq):
        raise TypeError("an equation is not a set of numbers")
    (symbol,) = expression.free_symbols
    return expression.as_set() if symbol.is_real else Intersection(Reals, expression.as_set())


def _same_equation(answer: Any, wanted: Any) -> bool:
    from sympy import simplify

    answer_difference, wanted_difference = answer.lhs - answer.rhs, wanted.lhs - wanted.rhs
    if answer_difference.free_symbols != wanted_difference.free_symbols:
        return False
    ratio = simplify(answer_difference / wanted_difference)
    return bool(ratio.is_number and ratio.is_nonzero)


def _same_inequality(answer: Any, wanted: Any) -> bool:
    from sympy import simplify
    from sympy.core.relational import Relational

    if not isinstance(answer, Relational) or not isinstance(wanted, Relational):
        return False
    answer_difference, wanted_difference = answer.lts - answer.gts, wanted.lts - wanted.gts  # pyright: ignore
    ratio = simplify(answer_difference / wanted_difference)
    strict = type(answer).__name__.startswith("Strict") == type(wanted).__name__.startswith(
        "Strict"
    )
    return bool(strict and ratio.is_number and ratio.is_positive)
