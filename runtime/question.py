"""A question from the command line or from stdin: text, and not too long."""

from __future__ import annotations

import sys

from agents.records import MAX_PROMPT_CHARS
from runtime.errors import InputError

MAX_BYTES_PER_CHAR = 4


def read_question(argument: str) -> str:
    """The question; `-` reads stdin.

    Raises `InputError` when it is not UTF-8, empty, or longer than `MAX_PROMPT_CHARS`.
    """
    text = _from_stdin() if argument == "-" else argument
    try:
        text.encode()
    except UnicodeEncodeError as error:  # bytes of an argument that were no UTF-8
        raise InputError(
            f"the question is not UTF-8 (at character {error.start})",
            hint="convert it first, for example with `iconv -t UTF-8`.",
        ) from error
    text = text.strip()
    if not text:
        raise InputError("the question is empty")
    if len(text) > MAX_PROMPT_CHARS:
        raise InputError(
            f"the question has {len(text):,} characters; the limit is {MAX_PROMPT_CHARS:,}",
            hint="ask for a part of it, or hand it over in several questions.",
        )
    return text


def _from_stdin() -> str:
    """Reads one byte more than could be allowed, so that a huge input is refused unread."""
    limit = MAX_PROMPT_CHARS * MAX_BYTES_PER_CHAR
    raw = sys.stdin.buffer.read(limit + 1)
    if len(raw) > limit:
        raise InputError(
            f"the question on stdin has more than {limit:,} bytes; the limit is"
            f" {MAX_PROMPT_CHARS:,} characters",
            hint="ask for a part of it, or hand it over in several questions.",
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"the question on stdin is not UTF-8 (byte {error.start} is 0x{raw[error.start]:02x})",
            hint="convert it first, for example with `iconv -t UTF-8`.",
        ) from error
