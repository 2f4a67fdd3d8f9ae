"""The fenced blocks of the documents, and the commands in them.

A comment in the line above a block names the requirement that a test lacks; such a block is not
run:

<!-- needs: a CUDA GPU -->
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
PROGRAMS = ("loopline", "runtime", "bench", "train")

_FENCE = re.compile(
    r"^(?:<!-- needs: (?P<needs>[^>]+?) -->\n)?"
    r"(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_HEREDOC = re.compile(r"<<'(\w+)'.*?^\1$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:loopline|runtime|bench|train) [a-z][^`\n]*)`")


@dataclass(frozen=True)
class Block:
    page: str
    """Path from the root of the repository."""
    line: int
    language: str
    needs: str
    """Empty for a block that a test runs."""
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    place: str
    words: tuple[str, ...]
    """The program and its arguments."""
    whole: bool
    """False for a command that a sentence only mentions: arguments may be missing or
    placeholders."""


def documents() -> list[str]:
    """Yield every page that people read, by its path from the root."""
    below = (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return [*(name for name in TOP if (ROOT / name).is_file()), *sorted(below)]


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    return [
        Block(
            page,
            text.count("\n", 0, match.start("language")) + 1,
            match["language"],
            match["needs"] or "",
            match["text"],
        )
        for match in _FENCE.finditer(text)
    ]


def commands(page: str) -> Iterator[Command]:
    """Yield every command of this project that a page shows or mentions."""
    for block in blocks(page):
        if block.language == "sh":
            for words in _commands_of_script(block.text):
                yield Command(block.place, words, whole=True)
    text = (ROOT / page).read_text()
    for match in _INLINE.finditer(_FENCE.sub("", text)):
        for words in _commands_of_script(match[1]):
            yield Command(page, words, whole=False)


def _commands_of_script(script: str) -> Iterator[tuple[str, ...]]:
    script = _HEREDOC.sub("", script).replace("\\\n", " ")
    for line in script.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();&|<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("();&|<>"):
                yield from _own(words)
                words = []
            else:
                words.append(word)


def _own(words: list[str]) -> Iterator[tuple[str, ...]]:
    """Return the command if it belongs to this project: after variables, `accelerate launch` or a
    container."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words[:1] == ["docker-compose"] or words[:1] == ["srun"] or words[:1] == ["accelerate"]:
        starts = [place for place, word in enumerate(words) if word in PROGRAMS]
        if "loopline.trainers.cli" in words:
            yield ("train", *words[words.index("loopline.trainers.cli") + 1 :])
            return
        words = words[starts[0] :] if starts else []
    if words and words[0] in PROGRAMS:
        yield tuple(words)
