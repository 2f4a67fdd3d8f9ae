"""Helpers shared by the readers of programming problems."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from loopline.agents.environments.code.extraction import parse_program
from loopline.agents.environments.code.problem import defined_names
from loopline.trainers.data.json_files import Unreadable, fit

M = TypeVar("M", bound=BaseModel)


def validate_record(model: type[M], **fields: Any) -> M:
    """Build one of our records from published, unchecked values. Raises Unreadable."""
    return fit(model, fields)


def names_under_test(tests: Sequence[str], solution: str) -> tuple[str, ...]:
    """Return the names that the golden program defines and the tests use, in the program's order. A
    candidate may define only these: with its own `set` or `all` it would judge itself.

    Raises Unreadable if there are none, or if a test can't be parsed.
    """
    used = _names(tests)
    names = tuple(dict.fromkeys(name for name in defined_names(solution) if name in used))
    if not names:
        raise Unreadable("the tests use nothing that the solution defines")
    return names


def imports_for(tests: Sequence[str], solution: str) -> str:
    """Return the golden program's imports that the tests rely on, one per line."""
    used = _names(tests)
    lines = [
        ast.unparse(node)
        for node in parse_program(solution).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and used & {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    ]
    return "\n".join(lines)


def _names(sources: Sequence[str]) -> set[str]:
    """Return the names that the sources use. Raises Unreadable."""
    try:
        trees = [parse_program(source) for source in sources]
    except ValueError as error:
        raise Unreadable("a test is not Python", str(error)) from error
    return {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
