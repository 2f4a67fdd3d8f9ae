"""The function calls of a model's output, written as Python or as JSON.

Python calls are written as BFCL's prompt requests, `[f(a=1), g(b='x')]`; JSON calls as in
tool-calling endpoints and templates, `{"name": "f", "arguments": {…}}`, one or a list. No code is
run: names, calls and other expressions in place of a value become text, and only arithmetic on
numbers is evaluated, within limits.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from loopline.bench.checkers.python_calls import MAX_CHARS, expression
from loopline.trainers.data.json_files import Unreadable, parse

_FENCE = re.compile(r"\A```[a-z_]*\s*(.*?)\s*```\Z", re.DOTALL)
_BLOCK = re.compile(r"```[A-Za-z_]*\s*(.*?)```", re.DOTALL)
_MAX_LINES = 200
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_MAX_POWER = 30
_MAX_NUMBER = 1e30


@dataclass(frozen=True)
class ToolCall:
    """A function and its arguments as Python values."""

    name: str
    arguments: dict[str, Any]
    positional: int = 0
    """Number of arguments without a name; this module does not interpret them."""


def tool_calls(text: str) -> tuple[ToolCall, ...] | None:
    """Return the calls of an output; None if it is not calls but, for example, prose. An empty list
    is understood: it yields `()`.
    """
    text = text.strip()
    fenced = _FENCE.match(text)
    text = (fenced[1] if fenced else text).strip("` \n'")
    if len(text) > MAX_CHARS:
        return None
    from_json = _json_calls(text) if text[:1] in ("{", "[") else None
    return _python_calls(text) if from_json is None else from_json


def calls_among(text: str, offered: Collection[str]) -> tuple[ToolCall, ...]:
    """Return the calls of offered functions in a text with other words, in a fence or on a separate
    line."""
    fenced = [block[1] for block in _BLOCK.finditer(text)]
    lines = [line for line in text.splitlines() if line.strip()[:1] in ("[", "{") or "(" in line]
    candidates = (
        tool_calls(part) for part in (*fenced, *lines[:_MAX_LINES]) if len(part) <= MAX_CHARS
    )
    return tuple(call for calls in candidates for call in calls or () if call.name in offered)


def _json_calls(text: str) -> tuple[ToolCall, ...] | None:
    try:
        value = parse(text)
    except Unreadable:
        return None
    calls = [_json_call(item) for item in (value if isinstance(value, list) else [value])]
    valid_calls = [call for call in calls if call is not None]
    return tuple(valid_calls) if len(valid_calls) == len(calls) else None


def _json_call(value: Any) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    name = value.get("name")
    if isinstance(name, str):
        return _named_call(name, value.get("arguments", value.get("parameters", {})))
    # BFCL's own decoded form: {function: {argument: value}}.
    if len(value) == 1:
        ((name, arguments),) = value.items()
        return _named_call(name, arguments)
    return None


def _named_call(name: str, arguments: Any) -> ToolCall | None:
    if isinstance(arguments, str):
        try:
            # Some servers write no arguments as an empty text or as null.
            arguments = parse(arguments) if arguments.strip() else {}
        except Unreadable:
            return None
    arguments = {} if arguments is None else arguments
    return ToolCall(name, arguments) if isinstance(arguments, dict) else None


def _python_calls(text: str) -> tuple[ToolCall, ...] | None:
    # Several calls without brackets are a tuple in Python, so both forms parse.
    node = expression(text)
    nodes = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    calls = [item for item in nodes if isinstance(item, ast.Call)]
    if len(calls) != len(nodes):
        return None
    return tuple(
        ToolCall(
            ast.unparse(call.func),
            {keyword.arg or "**": _value(keyword.value) for keyword in call.keywords},
            len(call.args),
        )
        for call in calls
    )


def _value(node: ast.expr) -> Any:
    """Return a literal as its value, anything else as its text."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.List():
            return [_value(item) for item in node.elts]
        case ast.Tuple():
            return tuple(_value(item) for item in node.elts)
        case ast.Dict() if all(isinstance(key, ast.Constant) for key in node.keys):
            pairs = zip(node.keys, node.values, strict=True)
            return {_value(key): _value(item) for key, item in pairs if key is not None}
        case ast.UnaryOp() | ast.BinOp():
            number = _number(node)
            return ast.unparse(node) if number is None else number
        case _:
            return ast.unparse(node)


def _number(node: ast.expr) -> int | float | None:
    """Evaluate arithmetic on numbers; None if it contains anything else or grows too large."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _number(operand)
            return None if number is None else -number
        case ast.BinOp(left=first, op=ast.Pow(), right=second):
            base, power = _number(first), _number(second)
            if base is None or power is None or abs(power) > _MAX_POWER:
                return None
            return _compute_bounded(lambda: base**power)
        case ast.BinOp(left=first, op=op, right=second) if type(op) in _OPERATORS:
            left, right = _number(first), _number(second)
            if left is None or right is None:
                return None
            return _compute_bounded(lambda: _OPERATORS[type(op)](left, right))
        case _:
            return None


def _compute_bounded(compute: Callable[[], Any]) -> int | float | None:
    try:
        number = compute()
    except ArithmeticError:
        return None
    fits = isinstance(number, int | float) and abs(number) <= _MAX_NUMBER
    return number if fits else None
