"""Python that a model wrote, parsed but never run.

The text is untrusted: its size is limited, code that nests too deeply for the parser is not
considered Python, and Python's warnings about odd literals are suppressed.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHARS = 20_000
"""Maximum length of a parsed text in characters; a call has a few hundred."""
MAX_CALLS = 100
"""Maximum number of calls read from a text; later ones are ignored."""
_MAX_DEPTH = 100
"""Maximum depth of a syntax tree that is read recursively. Python's own parser stops at 200
brackets, but has no limit for operators."""

# Only at the start of a name: otherwise a long name would be read again from each letter.
_OPENING = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\(")
_KEYWORD = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class PythonCall:
    """A call as written: the dotted name, and each argument's value as text.

    The value of a string literal is the string; any other value is its source in Python's own
    spacing.
    """

    name: str
    arguments: tuple[tuple[str | None, str], ...]
    """Keyword and value; the keyword of a positional argument is None."""


def expression(text: str) -> ast.expr | None:
    """Parse the text as one Python expression; None if it is not one."""
    tree = _parse(text, "eval")
    return tree.body if isinstance(tree, ast.Expression) else None


def calls(text: str) -> list[PythonCall]:
    """Return every call in a text, including nested ones. A text that is not Python as a whole
    (prose, a quoted answer, a period after the call) is searched for `name(…)`, and the arguments
    of each call are read one by one. The same applies to calls with a positional argument after a
    keyword, which databases and models write.
    """
    tree = _parse(text, "exec")
    if tree is None:
        return list(_find_calls(text[:MAX_CHARS]))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [_call(node) for node in nodes[:MAX_CALLS]]


def _parse(text: str, mode: str) -> ast.AST | None:
    if len(text) > MAX_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_shallow(tree) else None


def _is_shallow(tree: ast.AST) -> bool:
    """Whether the tree stays within the recursion limit."""
    layer: list[ast.AST] = [tree]
    for _ in range(_MAX_DEPTH):
        layer = [child for node in layer for child in ast.iter_child_nodes(node)]
        if not layer:
            return True
    return False


def _call(node: ast.Call) -> PythonCall:
    positional = [(None, _value(argument)) for argument in node.args]
    keywords = [(keyword.arg or "**", _value(keyword.value)) for keyword in node.keywords]
    return PythonCall(ast.unparse(node.func), (*positional, *keywords))


def _value(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(node)


def _find_calls(text: str) -> Iterator[PythonCall]:
    for number, opening in enumerate(_OPENING.finditer(text)):
        if number == MAX_CALLS:
            return
        pieces = _arguments(text, opening.end())
        if pieces is not None:
            arguments = tuple(_argument(piece) for piece in pieces)
            yield PythonCall(opening[0][:-1], arguments)


def _arguments(text: str, start: int) -> list[str] | None:
    """Return the comma-separated pieces up to the closing bracket; None if there is none."""
    pieces: list[str] = []
    expected = [")"]
    begin, quote = start, ""
    for at in range(start, len(text)):
        sign = text[at]
        if quote:
            if sign == quote and text[at - 1] != "\\":
                quote = ""
        elif sign in "'\"":
            quote = sign
        elif sign in _CLOSING:
            expected.append(_CLOSING[sign])
        elif sign == expected[-1]:
            expected.pop()
            if not expected:
                return [piece for piece in (*pieces, text[begin:at]) if piece.strip()]
        elif sign == "," and len(expected) == 1:
            pieces.append(text[begin:at])
            begin = at + 1
    return None


def _argument(piece: str) -> tuple[str | None, str]:
    piece = piece.strip()
    keyword = _KEYWORD.match(piece)
    written = piece[keyword.end() :] if keyword else piece
    node = expression(written)
    return keyword[1] if keyword else None, written if node is None else _value(node)
