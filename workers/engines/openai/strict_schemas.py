"""Check of a JSON schema against the rules of OpenAI's strict mode.

OpenAI, Azure and Groq refuse a request with `strict` if an object in its schema allows further
properties or leaves one optional. Without `strict` they accept the schema, and the model follows it
as well as it can. Servers with grammars (vLLM, SGLang, llama.cpp) ignore the field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

_NAMED = ("properties", "$defs", "definitions")
"""Keywords whose values are schemas by name."""
_VALUES = ("const", "enum", "default", "examples")
"""Keywords whose values are not schemas."""


def is_strict(schema: object) -> bool:
    """Whether a schema describes an object, and every object in it has exactly its properties."""
    if not isinstance(schema, dict) or cast("dict[str, Any]", schema).get("type") != "object":
        return False
    return all(_is_closed(part) for part in _parts(cast("dict[str, Any]", schema)))


def _is_closed(schema: dict[str, Any]) -> bool:
    kinds = schema.get("type")
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        return "properties" not in schema
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return False
    names = cast("dict[str, Any]", properties)
    return schema.get("additionalProperties") is False and all(name in required for name in names)


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas in it."""
    yield schema
    for keyword, value in schema.items():
        if keyword in _VALUES:
            continue
        inner = value.values() if keyword in _NAMED and isinstance(value, dict) else (value,)
        for part in cast("tuple[Any, ...]", inner):
            for item in cast("list[Any]", part) if isinstance(part, list) else (part,):
                if isinstance(item, dict):
                    yield from _parts(cast("dict[str, Any]", item))
