"""JSON encoding of values that models and third-party servers wrote."""

from __future__ import annotations

import json
import math

import orjson


def json_bytes(value: object, *, sort_keys: bool = False) -> bytes:
    """UTF-8 JSON as orjson writes it, but also for values that orjson refuses and that a model's
    arguments or a tool's schema may contain: integers of more than 64 bits, and unpaired
    surrogates, which are escaped. Raises TypeError for values that JSON can't represent."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)
    except TypeError:
        plain = _finite(value)
        text = json.dumps(plain, separators=(",", ":"), sort_keys=sort_keys, allow_nan=False)
        return text.encode()


def _finite(value: object) -> object:
    """The value with null in place of NaN and infinities, as orjson writes them."""
    match value:
        case dict():
            return {name: _finite(part) for name, part in value.items()}
        case list() | tuple():
            return [_finite(part) for part in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
