"""Secrets that are known by their values, as texts may spell them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from functools import lru_cache

HIDDEN = "***"
MIN_SECRET_CHARS = 6
"""Minimum length of a hidden value: a shorter one (an empty variable, `test`) would hide half of
every text."""

_UNITS = re.compile(r"\\+|.", re.DOTALL)


def hide(text: str, secrets: Iterable[str], min_chars: int = MIN_SECRET_CHARS) -> str:
    """The text with the secrets masked, except shorter ones."""
    pattern = pattern_of(frozenset(secrets), min_chars)
    return text if pattern is None else pattern.sub(HIDDEN, text)


@lru_cache(maxsize=64)
def pattern_of(
    secrets: frozenset[str], min_chars: int = MIN_SECRET_CHARS
) -> re.Pattern[str] | None:
    """A pattern of all spellings of the secrets, without shorter ones; the longest first, so that
    one is not hidden only as a part of another. None if there are none."""
    longest_first = sorted(secrets, key=lambda secret: (-len(secret), secret))
    patterns = [
        "".join(map(_spellings, _UNITS.findall(secret)))
        for secret in longest_first
        if len(secret) >= min_chars
    ]
    return re.compile("|".join(patterns)) if patterns else None


@lru_cache(maxsize=1024)
def _spellings(character: str) -> str:
    """A pattern of a character as it is and as JSON, URLs, HTML and Python escape it, also several
    times over. No common encoding escapes letters and digits of ASCII."""
    if character.isascii() and character.isalnum():
        return character
    if character.startswith("\\"):
        # One repetition for all of them: nested ones would match in countless ways.
        count = len(character)
        escaped = r"\\{1,8}u005c|%(?:25){0,2}5c|&#92;|&#x5c;"
        return rf"(?:\\{{{count},{8 * count}}}|(?i:{escaped}){{{count}}})"
    utf8, utf16 = character.encode(errors="replace"), character.encode("utf-16-be", "surrogatepass")
    units = (utf16[place : place + 2].hex() for place in range(0, len(utf16), 2))
    in_json = json.dumps(character, ensure_ascii=False)[1:-1].removeprefix("\\")
    escapes = {
        "".join(f"%(?:25){{0,2}}{byte:02x}" for byte in utf8),
        "".join(rf"\\{{1,8}}u{unit}" for unit in units),
        "".join(rf"\\{{1,8}}x{byte:02x}" for byte in utf8),
        rf"\\{{1,8}}{re.escape(in_json)}",
        f"&#(?:{ord(character)}|x{ord(character):x});",
        re.escape(html.escape(character)),
    }
    space = r"|\+" if character == " " else ""
    return f"(?:{re.escape(character)}{space}|(?i:{'|'.join(sorted(escapes))}))"
