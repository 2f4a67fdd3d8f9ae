"""Foreign text on a terminal: what models, servers and files say is shown, never executed."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TextIO

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
"""Terminal control, characters that change the direction of text, separators of lines, and
characters without width. Line feed and tab stay; so do U+200C and U+200D, which join letters
(Persian, Hindi) and emoji. Scripts of pages read the same pattern: see
`loopline.bench.report.html`."""


def sanitize(text: str) -> str:
    """Return text that affects neither a terminal nor the display of the text around it."""
    return CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def sanitize_line(text: str) -> str:
    """Return `sanitize` on one line, so that a name with a line break is not a row of its own."""
    return sanitize(text).replace("\n", "\\n").replace("\t", " ")


class Guarded:
    """A stream of text through which nothing reaches a terminal that it would obey.

    Whatever is printed may hold a name that a model, a server or a file chose: of a tool, a worker,
    a policy, a run. So it is the stream that looks, and no single command. Rich draws past it, by
    the name that it keeps for such streams: see `tables.new_table` for what is drawn in tables.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        # A progress bar begins with a carriage return, and draws over itself alone.
        start = "\r" if text.startswith("\r") else ""
        self.rich_proxied_file.write(start + sanitize(text[len(start) :]))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def unwrap_stream(stream: TextIO) -> TextIO:
    """Return the stream without its guard, for code that writes escape codes and checks its own
    input."""
    return stream.rich_proxied_file if isinstance(stream, Guarded) else stream


@contextmanager
def guard_output() -> Generator[None]:
    """Make all output of a program harmless within the block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Guarded(sys.stdout), Guarded(sys.stderr)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
