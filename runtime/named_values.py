"""Options of a command that name what they set: `--setting turns=40 --setting brief=true`."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.records import JsonObject
from loopline.runtime.config import option_value
from loopline.runtime.errors import InputError


def named_values(option: str, words: Sequence[str]) -> JsonObject:
    """`NAME=VALUE`; a value is JSON (`4`, `true`) or else text. Raises `InputError`."""
    found: JsonObject = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise InputError(f"{option}: {word!r} is not NAME=VALUE, as in turns=40")
        found[name] = option_value(value)
    return found
