"""Foreign text on a terminal: text from models, servers and files is shown, never executed."""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from io import TextIOWrapper
from typing import Any, TextIO

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
"""Terminal control characters, characters that change text direction, line separators, and
zero-width characters. Line feed and tab are allowed; so are U+200C and U+200D, which join letters
(Persian, Hindi) and emoji. The pages' scripts use the same pattern: see
`loopline.bench.report.html`."""


def sanitize(text: str) -> str:
    """Return text that affects neither a terminal nor the display of the text around it."""
    return CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def sanitize_line(text: str) -> str:
    """Return `sanitize` on one line, so that a name with a line break doesn't form another row."""
    return sanitize(text).replace("\n", "\\n").replace("\t", " ")


class Guarded:
    """A text stream that lets no control sequence through to a terminal.

    Any output may contain a name from a model, a server or a file: of a tool, a worker, a policy, a
    run. Therefore, the stream does the check instead of each command. Rich bypasses it through the
    attribute that it reads on such streams: see `tables.new_table` for text in tables.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        # A progress bar starts with a carriage return and only overwrites itself.
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


@cache
def _nowhere() -> TextIO:
    stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the exit
    atexit.register(stream.close)
    return stream


def _writable(stream: TextIO | None) -> TextIO:
    """Return a stream that accepts any text: it escapes characters that the terminal's or the
    file's encoding lacks, and drops everything if the stream was closed before the start."""
    if stream is None:
        return _nowhere()
    if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")
    return stream


@contextmanager
def guard_output() -> Generator[None]:
    """Make all output of a program harmless within the block."""
    before = sys.stdout, sys.stderr
    out, err = (Guarded(_writable(stream)) for stream in before)
    sys.stdout, sys.stderr = out, err  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
