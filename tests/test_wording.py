"""The project's names and sentences are plain, standard English.

A variable is named by a noun for its value, never by a pronoun or a past participle. Prose avoids
words that a native engineer would not write.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("agents", "bench", "bus", "loopline", "runtime", "trainers", "workers", "tests")
PRONOUNS = {"each", "one", "own", "theirs", "ours"}
PARTICIPLES = {
    "answered", "asked", "chosen", "found", "given", "held", "kept", "known", "made", "said",
    "seen", "served", "shown", "taken", "told", "tried",
}  # fmt: skip
BANNED_NAMES = PRONOUNS | PARTICIPLES
LEFT_OVER = 3
"""Remaining names of that kind: fields of stored records, which other versions write and read. The
number only goes down."""
BANNED_PROSE = {
    r"\banew\b": "again",
    r"\bwhoever\b": "anyone who, or the caller that",
    r"\b(whence|hence|hitherto|thereby|hereby|whereby|wherein|whilst|albeit|lest|nought)\b": (
        "a modern word"
    ),
    r"\b(mend|mends|mended)\b": "fix",
    r"\bheeds?\b": "respect, follow",
    r"(?<!here )\b(is|are|was|were) no (?!longer|more|other|better|less|worse|fewer|later|further)"
    r"\w": "is not a, are not",
    r"\bbeside\b": "next to, compared with, in addition to",
    r"\bin work\b(?! streams)": "in progress, running",
    r"\blet in\b|\blets? (it|them|(a|the) \w+|\w+s) in\b": "admit",
    r"\bso many\b": "this many, or the number",
    r"\bin vain\b": "without use",
    r"\bin the mean\b": "on average",
    r"\b(an own|one's own)\b": "your own, our own",
    r"\bparted\b": "separated, split",
    r"\bcomes? to the same\b": "gives the same",
    r"\bas ever\b": "as usual",
    r", for (it|they|nobody|nothing|there)\b": "since, because",
    r"\bhang(s|ing)? on\b": "depends on",
    r"\bfor want of\b": "without, because there is no",
    r"\b(is|are|was|were) told of\b": "is reported, learns of",
    r"\bgo(es)? on with\b": "resumes, continues",
    r"\bstands? (above|there|alongside)\b": "is above, is there",
    r"\bcan'?t be had\b|\bcannot be had\b|\bto be had\b": "is not available",
    r"\b(waits|wait|waited) for company\b": "for more entries",
}
"""Pattern → replacement."""
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/**/*.md")


def sources() -> list[Path]:
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    # `loopline/` links to the other folders, which are read at their own path.
    return sorted({path.resolve() for path in paths})


def bound_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield every variable and parameter with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def prose(text: str) -> Iterator[tuple[str, int]]:
    """Yield each comment and docstring of a module as one line, with the number of its first
    line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string, token.start[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, str):
                yield " ".join(value.split()), node.lineno


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_the_number_of_variables_named_by_a_pronoun_or_participle_does_not_grow() -> None:
    places = [
        f"{place(path, line)}: {name}"
        for path in sources()
        for name, line in bound_names(ast.parse(path.read_text()))
        if name in BANNED_NAMES
    ]
    assert len(places) <= LEFT_OVER, "\n".join(places)


def all_prose() -> list[tuple[str, str]]:
    """Return texts with their places: comments and docstrings of the sources, lines of the
    documents."""
    texts = [
        (text, place(path, line))
        for path in sources()
        if path != Path(__file__).resolve()
        for text, line in prose(path.read_text())
    ]
    texts += [
        (text, place(path, line))
        for document in DOCUMENTS
        for path in ROOT.glob(document)
        for line, text in enumerate(path.read_text().splitlines(), 1)
    ]
    texts += [
        (comment, place(path, line))
        for path in (ROOT / "bus" / "lua").rglob("*.lua")
        for line, text in enumerate(path.read_text().splitlines(), 1)
        for _, dashes, comment in [text.partition("--")]
        if dashes
    ]
    return texts


def test_prose_has_no_literary_words() -> None:
    words = {re.compile(pattern, re.IGNORECASE): pattern for pattern in BANNED_PROSE}
    any_word = re.compile("|".join(f"(?:{pattern})" for pattern in BANNED_PROSE), re.IGNORECASE)
    places = [
        f"{where}: write: {BANNED_PROSE[pattern]}"
        for text, where in all_prose()
        if any_word.search(text)
        for word, pattern in words.items()
        if word.search(text)
    ]
    assert places == [], "\n".join(places)
