"""JSON of values that models and foreign servers wrote."""

from __future__ import annotations

import json
import math

import orjson


def json_bytes(value: object, *, sort_keys: bool = False) -> bytes:
    """JSON in UTF-8 as orjson writes it, also with what a model's arguments and a tool's schema may
    have and orjson refuses: integers of more than 64 bits, and halves of surrogate pairs, which are
    escaped. Raises TypeError for what JSON does not have."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)
    except TypeError:
        plain = _finite(value)
        text = json.dumps(plain, separators=(",", ":"), sort_keys=sort_keys, allow_nan=False)
        return text.encode()


def _finite(value: object) -> object:
    """The value with null for NaN and infinities, as orjson writes them."""
    match value:
        case dict():
            return {name: _finite(part) for name, part in value.items()}
        case list() | tuple():
            return [_finite(part) for part in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
