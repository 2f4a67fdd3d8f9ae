"""Parse a model's JSON arguments, which may be hostile, into plain objects."""

from __future__ import annotations

import json
from typing import Any, cast

from pydantic import BaseModel

from loopline.agents.records import JsonObject

MAX_DEPTH = 64
"""Maximum nesting depth of a call's arguments. The records around them add levels, and pydantic
reads 200."""


def parse_arguments(raw: str) -> tuple[JsonObject | None, str | None]:
    """A model's arguments as an object, or `None` and an error message."""
    try:
        value: object = json.loads(raw)
        # Half a surrogate pair, NaN and infinity: a record's JSON can't contain them.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        return None, f"the arguments are not valid JSON: {error}"
    if is_deeper_than(value, MAX_DEPTH):
        return None, f"the arguments are nested more than {MAX_DEPTH} levels deep"
    if not isinstance(value, dict):
        return None, f"the arguments must be a JSON object, not {type(value).__name__}"
    return cast(JsonObject, value), None


def is_deeper_than(value: object, levels: int) -> bool:
    """Whether JSON lists and objects nest deeper than that."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [
            inner
            for item in layer
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not layer:
            return False
    return True


def json_object(value: Any) -> JsonObject:
    """A record as a plain JSON object."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if not isinstance(value, dict):
        raise TypeError(f"expected a mapping, got {type(value).__name__}")
    return value  # pyright: ignore[reportUnknownVariableType]
