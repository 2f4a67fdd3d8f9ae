"""Reading observations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def parse_observation(observation: str) -> Any:
    """An observation as the object that it is."""
    return json.loads(observation)


def leaf_values(value: Any) -> Iterator[str | int]:
    """Every name and number in a parsed observation, keys of objects left out unless they stand
    for rows (a menu, a cart)."""
    if isinstance(value, dict):
        for item in value.values():
            yield from leaf_values(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaf_values(item)
    elif isinstance(value, str | int):
        yield value


def keys(value: Any) -> Iterator[str]:
    """The keys of every object in a parsed observation."""
    if isinstance(value, dict):
        yield from value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from keys(item)
