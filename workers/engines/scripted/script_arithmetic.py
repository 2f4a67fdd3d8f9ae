"""Arithmetic for the scripted engine: find an expression in a text, reduce it step by step.

It computes exactly (with fractions) on a parsed tree and never evaluates code.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

MAX_EXPRESSION_CHARS = 200
"""Longer runs of digits and operators are not treated as an expression."""

_EXPRESSION = re.compile(r"[\d(][\d\s.+\-*/×÷()]*[\d)]")
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_RESULT = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?")
_OPERATORS: dict[type[ast.operator], tuple[str, Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}
_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}


@dataclass(frozen=True)
class Leaf:
    """A number."""

    value: Fraction


@dataclass(frozen=True)
class Operation:
    """`left symbol right`."""

    symbol: str
    left: Leaf | Operation
    right: Leaf | Operation
    value: Fraction


Node = Leaf | Operation


def find_expression(text: str) -> Operation | None:
    """The longest arithmetic expression in `text` that parses and has an operator."""
    for match in sorted(_EXPRESSION.finditer(text), key=lambda m: -len(m.group())):
        raw = match.group().replace("×", "*").replace("÷", "/")
        if len(raw) > MAX_EXPRESSION_CHARS:
            continue
        node = parse(raw)
        if isinstance(node, Operation):
            return node
    return None


def parse(expression: str) -> Node | None:
    """The tree of `expression`, or `None` if it isn't +, -, *, / over numbers."""
    try:
        return _convert(ast.parse(" ".join(expression.split()), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def numbers_in(text: str) -> list[Fraction]:
    """Every number in `text`, in order; commas separate thousands."""
    return [Fraction(numeral.replace(",", "")) for numeral in _NUMBER.findall(text)]


def read_number(text: str) -> Fraction | None:
    """The last number in a tool's answer; `None` for an error or a text without a number."""
    if "error" in text.lower():
        return None
    numerals = _RESULT.findall(text)
    try:
        return Fraction(numerals[-1].replace(",", "")) if numerals else None
    except (ValueError, ZeroDivisionError):
        return None


def combine(symbol: str, left: Node, right: Node) -> Operation:
    """Build an operation. Raises ZeroDivisionError."""
    compute = next(function for name, function in _OPERATORS.values() if name == symbol)
    return Operation(symbol, left, right, compute(left.value, right.value))


def equations(node: Node) -> list[str]:
    """One true equation `a op b = c` per operation, innermost first."""
    if isinstance(node, Leaf):
        return []
    return [*equations(node.left), *equations(node.right), equation(node)]


def equation(node: Operation) -> str:
    """The equation of an operation, with its operands reduced to numbers."""
    left, right = show(node.left.value), show(node.right.value)
    return f"{left} {node.symbol} {right} = {show(node.value)}"


def write(node: Node) -> str:
    """The expression as text, with minimal parentheses."""
    if isinstance(node, Leaf):
        return show(node.value)
    strength = _STRENGTH[node.symbol]
    # On the right, an operator of equal precedence needs parentheses: 7 - (2 - 1).
    left, right = _operand(node.left, strength), _operand(node.right, strength + 1)
    return f"{left} {node.symbol} {right}"


def show(value: Fraction) -> str:
    """An integer, a finite decimal with at most 6 places, or a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    scaled = value * 10**6
    if scaled.denominator == 1:
        sign = "-" if value < 0 else ""
        whole, rest = divmod(abs(scaled.numerator), 10**6)
        return f"{sign}{whole}.{rest:06d}".rstrip("0")
    return f"{value.numerator}/{value.denominator}"


def _operand(node: Node, least: int) -> str:
    text = write(node)
    if isinstance(node, Leaf):
        return f"({text})" if node.value < 0 or "/" in text else text
    return text if _STRENGTH[node.symbol] >= least else f"({text})"


def _convert(tree: ast.expr) -> Node:
    match tree:
        case ast.Constant(value=int() | float()) if not isinstance(tree.value, bool):
            return Leaf(Fraction(str(tree.value)))
        case ast.UnaryOp(op=ast.USub()):
            return Leaf(-_convert(tree.operand).value)
        case ast.BinOp() if type(tree.op) in _OPERATORS:
            symbol, _ = _OPERATORS[type(tree.op)]
            return combine(symbol, _convert(tree.left), _convert(tree.right))
        case _:
            raise ValueError("not an arithmetic expression")
