"""JSON of values that models and foreign servers wrote."""

from __future__ import annotations

import json

import orjson


def json_bytes(value: object, *, sort_keys: bool = False) -> bytes:
    """JSON in UTF-8 as orjson writes it, also with integers of more than 64 bits, which a model's
    arguments and a tool's schema may have, and orjson refuses. Raises TypeError for what JSON does
    not have."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)
    except TypeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)
        return text.encode()
