"""A foreign JSON schema made plain: no references, known keywords, bounded in size.

What comes out may allow more than the original (a recursive part, a pattern and a format are let
go), never less that matters: the server checks its arguments itself. So a schema can't make a
grammar or a validator work for minutes, and can't reach for anything outside of its document.
"""

from __future__ import annotations

import json

from pydantic import JsonValue

from agents.records import JsonObject
from workers.tool_sources.errors import ToolRefused

MAX_NODES = 1_000
"""Of a schema, with every reference written out."""
MAX_DEPTH = 16
MAX_CHARS = 32_768
"""Of the plain schema as JSON."""
MAX_DESCRIPTION_CHARS = 1_024
MAX_NAME_CHARS = 128
MAX_CHOICES = 500
MAX_LENGTH_BOUND = 10_000
"""Larger bounds of lengths say nothing, and a grammar would count up to them."""

SMALLEST_BOUND, LARGEST_BOUND = 1e-6, 1e15
"""Of numbers: a grammar writes a bound out digit by digit, and gives up on others."""

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_NUMBER_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LENGTH_BOUNDS = ("minLength", "maxLength", "minItems", "maxItems")


def plain_schema(schema: JsonValue, document: JsonValue = None) -> JsonObject:
    """The schema of an object; references point into `document`, or into the schema itself.

    Raises `ToolRefused` for one that is too large, that is no object's, or whose references lead
    nowhere.
    """
    plain = _Writer(schema if document is None else document).node(schema, frozenset(), 0)
    if plain.get("type", "object") != "object":
        raise ToolRefused("its arguments are no object")
    result: JsonObject = {**plain, "type": "object", "properties": plain.get("properties", {})}
    try:
        size = len(json.dumps(result, allow_nan=False))
    except ValueError as error:
        raise ToolRefused(f"its schema is no JSON: {error}") from error
    if size > MAX_CHARS:
        raise ToolRefused(f"its schema has {size} characters, at most {MAX_CHARS} are taken")
    return result


def resolve(document: JsonValue, reference: str) -> JsonValue:
    """What a local reference (`#/components/schemas/Pet`) points at. Raises `ToolRefused`."""
    if not reference.startswith("#"):
        raise ToolRefused(f"it refers to another document: {reference[:100]}")
    node = document
    for part in reference.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            raise ToolRefused(f"its schema refers to nothing: {reference[:100]}")
    return node


class _Writer:
    def __init__(self, document: JsonValue) -> None:
        self._document = document
        self._nodes = 0

    def node(self, schema: JsonValue, inside: frozenset[str], depth: int) -> JsonObject:
        """`inside` are the references that lead here: one of them again is recursion."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise ToolRefused(f"its schema has more than {MAX_NODES} parts")
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in inside:
                return {}
            target = resolve(self._document, reference)
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            merged = {**target, **beside} if isinstance(target, dict) else beside
            return self.node(merged, inside | {reference}, depth + 1)
        result = self._leaf(schema)
        self._object(schema, result, inside, depth)
        for key in ("items", "additionalProperties"):
            below = schema.get(key)
            if isinstance(below, dict):
                result[key] = self.node(below, inside, depth + 1)
        if schema.get("additionalProperties") is False:
            result["additionalProperties"] = False
        self._combined(schema, result, inside, depth)
        return result

    def _leaf(self, schema: JsonObject) -> JsonObject:
        result: JsonObject = {}
        kinds = schema.get("type")
        told_kinds = [each for each in _list(kinds) or [kinds] if isinstance(each, str)]
        named = [kind for kind in dict.fromkeys(told_kinds) if kind in _TYPES]
        if named and schema.get("nullable") is True and "null" not in named:
            named.append("null")  # as OpenAPI 3.0 says it
        if named:
            result["type"] = named[0] if len(named) == 1 else [*named]
        told, form = schema.get("description"), schema.get("format")
        words = told[:MAX_DESCRIPTION_CHARS] if isinstance(told, str) else ""
        if isinstance(form, str) and form not in words:
            words = f"{words} ({form[:32]})".strip()
        if words:
            result["description"] = words
        choices = schema.get("enum")
        if isinstance(choices, list) and 0 < len(choices) <= MAX_CHOICES:
            result["enum"] = choices
        for key in ("const", "default"):
            if key in schema and not isinstance(schema[key], dict | list):
                result[key] = schema[key]
        for key in _NUMBER_BOUNDS:
            bound = schema.get(key)
            if isinstance(bound, bool) or not isinstance(bound, int | float):
                continue
            if bound == 0 or SMALLEST_BOUND <= abs(bound) <= LARGEST_BOUND:
                result[key] = bound
        for key in _LENGTH_BOUNDS:
            bound = schema.get(key)
            if isinstance(bound, bool) or not isinstance(bound, int):
                continue
            if 0 <= bound <= MAX_LENGTH_BOUND:
                result[key] = bound
        return result

    def _object(
        self, schema: JsonObject, result: JsonObject, inside: frozenset[str], depth: int
    ) -> None:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return
        fields: JsonObject = {}
        for name, field in properties.items():
            if len(name) > MAX_NAME_CHARS:
                raise ToolRefused(f"an argument's name is longer than {MAX_NAME_CHARS} characters")
            fields[name] = self.node(field, inside, depth + 1)
        result["properties"] = fields
        required = _list(schema.get("required"))
        names = dict.fromkeys(name for name in required if isinstance(name, str))
        if needed := [name for name in names if name in fields]:
            result["required"] = [*needed]

    def _combined(
        self, schema: JsonObject, result: JsonObject, inside: frozenset[str], depth: int
    ) -> None:
        for key in ("anyOf", "oneOf"):
            choices = schema.get(key)
            if isinstance(choices, list) and choices:
                result["anyOf"] = [self.node(choice, inside, depth + 1) for choice in choices]
        for part in _list(schema.get("allOf")):
            _add(result, self.node(part, inside, depth + 1))


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _add(result: JsonObject, part: JsonObject) -> None:
    """One more part of `allOf`: its fields too, and else what is not said yet."""
    for key, value in part.items():
        present = result.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            result[key] = {**value, **present}
        elif key == "required" and isinstance(present, list) and isinstance(value, list):
            result[key] = [*present, *(name for name in value if name not in present)]
        elif key not in result:
            result[key] = value
