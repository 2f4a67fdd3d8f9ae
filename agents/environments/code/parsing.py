"""Parsing of programs that others wrote."""

from __future__ import annotations

import ast
import warnings


def parse_program(source: str) -> ast.Module:
    """The program's syntax tree. Raises ValueError for what is not a program, however it fails;
    warnings about its dubious habits (such as an invalid escape) are suppressed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
