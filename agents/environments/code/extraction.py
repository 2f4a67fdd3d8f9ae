"""The program in what a model wrote."""

from __future__ import annotations

import ast
import re

from agents.environments.code.parsing import parsed
from agents.thinking import said

# Possessive, so that a long line of spaces can't be divided among them in every way.
_FENCE = re.compile(r"^[ \t]*+```[ \t]*+([A-Za-z0-9_+.-]*+)[^\n`]*+$", re.MULTILINE)
_PYTHON = frozenset({"", "py", "python", "python3", "Python"})
MAX_PROGRAM_CHARS = 60_000
"""A longer text without a fence is not parsed, which could take seconds and hundreds of megabytes;
a tool agent's longer program counts as none. The longest golden one of the code team's data sets
has 20 kB, and a step with its candidates must fit into a message."""


def extract_code(completion: str) -> str:
    """The last fenced block of Python, as LiveCodeBench's judge takes it; a block that was never
    closed counts (the model ran out of tokens). Without a fence the whole text, if it is a program
    of at most `MAX_PROGRAM_CHARS` and not only an expression. Otherwise nothing."""
    text = said(completion).replace("\r\n", "\n")
    blocks = _blocks(text)
    if blocks:
        return blocks[-1]
    return text.strip("\n") if _is_program(text) else ""


def _blocks(text: str) -> list[str]:
    """Contents of the fenced blocks of Python, in order, each with its last newline."""
    found: list[str] = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
            continue
        if opened[1] in _PYTHON:
            found.append(text[opened.end() + 1 : fence.start()])
        # A fence with a language opens a block even where the one before was not closed.
        opened = fence if fence[1] else None
    if opened is not None and opened[1] in _PYTHON:
        found.append(text[opened.end() + 1 :])
    return [block for block in found if block.strip()]


def _is_program(text: str) -> bool:
    if len(text) > MAX_PROGRAM_CHARS:
        return False
    try:
        tree = parsed(text.strip("\n"))
    except ValueError:
        return False
    calls = [node for node in tree.body if isinstance(node, ast.Expr)]
    return len(calls) < len(tree.body) or any(isinstance(node.value, ast.Call) for node in calls)
