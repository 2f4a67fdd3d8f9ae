"""Docstrings stand alone: none begins in the middle of a sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "agents",
    "bench",
    "bus",
    "docs",
    "examples",
    "loopline",
    "runtime",
    "trainers",
    "workers",
)
FRAGMENT_WORDS = {
    "Against", "As", "At", "Behind", "Between", "By", "For", "From", "In", "Its", "Like", "Of",
    "On", "Per", "So", "Those", "To", "Until", "When", "Where", "Which", "Who", "Whose", "With",
    "Without",
}  # fmt: skip
"""First words of docstrings that are unclear without the name above them."""


def docstrings(text: str) -> Iterator[tuple[str, int]]:
    """Yield the docstrings of a module, its classes, functions and attributes, with their lines."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(value)), lineno=line):
                yield value.strip(), line
            case _:
                pass


def test_docstrings_stand_alone() -> None:
    # `loopline/` links to the other folders, which are read at their own path.
    paths = {path.resolve() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    places = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in sorted(paths)
        for text, line in docstrings(path.read_text())
        if text and text.split()[0].rstrip(",:") in FRAGMENT_WORDS
    ]
    assert places == [], "begin with a noun or a verb:\n" + "\n".join(places)
