"""A foreign JSON schema made plain: no references, known keywords, bounded in size.

What comes out may allow more than the original (a recursive part, a pattern and a format are
dropped), never less: the server checks its arguments itself. So a schema can't make a grammar or a
validator work for minutes, and can't reach for anything outside of its document. Where generators
write what the standard's letter forbids (`nullable` alongside an `enum` without null), what they
mean is taken.
"""

from __future__ import annotations

import json

from pydantic import JsonValue

from loopline.agents.records import JsonObject
from loopline.workers.tool_sources import ToolRefused
from loopline.workers.tool_sources.references import References

MAX_NODES = 1_000
"""Most nodes of a schema, with every reference written out."""
MAX_DEPTH = 16
MAX_CHARS = 32_768
"""Longest plain schema as JSON."""
MAX_DESCRIPTION_CHARS = 1_024
MAX_NAME_CHARS = 128
MAX_CHOICES = 500
MAX_LENGTH_BOUND = 10_000
"""Larger bounds of lengths say nothing, and a grammar would count up to them."""

SMALLEST_BOUND, LARGEST_BOUND = 1e-6, 1e15
"""Bounds of numbers: a grammar writes a bound out digit by digit, and gives up on others."""

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_NUMBER_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_REFERENCES = ("$ref", "$dynamicRef")
_LENGTH_BOUNDS = ("minLength", "maxLength", "minItems", "maxItems")


def plain_schema(schema: JsonValue, references: References | None = None) -> JsonObject:
    """The schema of an object; its references lead into the schema itself, if not elsewhere.

    Raises `ToolRefused` for one that is too large, that is not an object's, or whose references
    lead nowhere.
    """
    references = References.of_schema(schema) if references is None else references
    plain = _Writer().node(schema, references, frozenset(), 0)
    kinds = plain.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise ToolRefused("its arguments are not an object")
    result: JsonObject = {**plain, "type": "object", "properties": plain.get("properties", {})}
    try:
        size = len(json.dumps(result, allow_nan=False))
    except ValueError as error:
        raise ToolRefused(f"its schema is not JSON: {error}") from error
    if size > MAX_CHARS:
        raise ToolRefused(f"its schema has {size} characters, at most {MAX_CHARS} are taken")
    return result


class _Writer:
    def __init__(self) -> None:
        self._nodes = 0

    def node(
        self, schema: JsonValue, references: References, inside: frozenset[int], depth: int
    ) -> JsonObject:
        """`inside` are the parts that were referred to on the way here: one of them again is
        recursion."""
        self._count(1)
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return {}
        references = references.inside(schema)
        reference = schema.get("$ref", schema.get("$dynamicRef"))
        if isinstance(reference, str):
            target, onwards = references.follow(reference)
            if id(target) in inside:
                return {}
            beside = {key: value for key, value in schema.items() if key not in _REFERENCES}
            target_schema = self.node(target, onwards, inside | {id(target)}, depth + 1)
            if not _has_constraints(beside):
                return {**target_schema, **_annotations(beside)}
            result = self.node(beside, references, inside, depth + 1)
            _add(result, target_schema)
            return _nullable(result) if schema.get("nullable") is True else result
        result = self._leaf(schema)
        self._object(schema, result, references, inside, depth)
        self._items(schema, result, references, inside, depth)
        for key in ("anyOf", "oneOf"):
            choices = schema.get(key)
            if isinstance(choices, list) and choices:
                result["anyOf"] = [
                    self.node(choice, references, inside, depth + 1) for choice in choices
                ]
        for part in _list(schema.get("allOf")):
            _add(result, self.node(part, references, inside, depth + 1))
        null_by_type = "enum" in schema and "null" in _list(result.get("type"))
        return _nullable(result) if schema.get("nullable") is True or null_by_type else result

    def _count(self, parts: int) -> None:
        self._nodes += parts
        if self._nodes > MAX_NODES:
            raise ToolRefused(f"its schema has more than {MAX_NODES} parts")

    def _leaf(self, schema: JsonObject) -> JsonObject:
        result: JsonObject = {}
        kinds = schema.get("type")
        told_kinds = [item.lower() for item in _list(kinds) or [kinds] if isinstance(item, str)]
        # A name that is not one of JSON's says nothing, so it must not narrow the others.
        is_known = all(kind in _TYPES for kind in told_kinds)
        named = [*dict.fromkeys(told_kinds)] if is_known else []
        if schema.get("format") == "int-or-string":  # as Kubernetes says it, of a `string`
            named = ["integer", "string"]
        if named:
            result["type"] = named[0] if len(named) == 1 else [*named]
        result.update(_annotations(schema))
        text = named == ["string"] or sorted(named) == ["null", "string"]
        choices = schema.get("enum")
        if isinstance(choices, list) and 0 < len(choices) <= MAX_CHOICES:
            result["enum"] = [_as_text(item) if text else item for item in choices]
        for key in ("const", "default"):
            value = schema.get(key)
            if key in schema and not isinstance(value, dict | list):
                result[key] = _as_text(value) if text else value
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
        self,
        schema: JsonObject,
        result: JsonObject,
        references: References,
        inside: frozenset[int],
        depth: int,
    ) -> None:
        properties = schema.get("properties")
        fields: JsonObject = {}
        if isinstance(properties, dict):
            self._count(len(properties) // 10)
            for name, field in properties.items():
                if len(name) > MAX_NAME_CHARS:
                    raise ToolRefused(
                        f"an argument's name is longer than {MAX_NAME_CHARS} characters"
                    )
                fields[name] = self.node(field, references, inside, depth + 1)
            result["properties"] = fields
        required = _list(schema.get("required"))
        self._count(len(required) // 10)
        names = dict.fromkeys(name for name in required if isinstance(name, str))
        if needed := [
            name for name in names if name in fields and not _read_only(properties, name)
        ]:
            result["required"] = [*needed]
        others = schema.get("additionalProperties")
        patterns = schema.get("patternProperties")
        if (
            isinstance(patterns, dict)
            and patterns
            and (others is False or isinstance(others, dict))
        ):
            # The pattern of the names is dropped, so any other name may be one of them.
            kinds = [
                self.node(pattern_schema, references, inside, depth + 1)
                for pattern_schema in patterns.values()
            ]
            if isinstance(others, dict):
                kinds.append(self.node(others, references, inside, depth + 1))
            result["additionalProperties"] = kinds[0] if len(kinds) == 1 else {"anyOf": [*kinds]}
        elif isinstance(others, dict):
            result["additionalProperties"] = self.node(others, references, inside, depth + 1)
        elif others is False:
            result["additionalProperties"] = False

    def _items(
        self,
        schema: JsonObject,
        result: JsonObject,
        references: References,
        inside: frozenset[int],
        depth: int,
    ) -> None:
        """What all items are like; of a tuple, whose items differ, nothing."""
        items = schema.get("items")
        if isinstance(items, dict) and "prefixItems" not in schema:
            result["items"] = self.node(items, references, inside, depth + 1)


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _read_only(properties: JsonValue, name: str) -> bool:
    """Whether a field is one that a server gives and nobody sends: OpenAPI asks it of answers only,
    where one schema serves both."""
    field = properties.get(name) if isinstance(properties, dict) else None
    return isinstance(field, dict) and field.get("readOnly") is True


def _annotations(schema: JsonObject) -> JsonObject:
    """What a schema says of itself in words."""
    description, form = schema.get("description"), schema.get("format")
    words = description[:MAX_DESCRIPTION_CHARS] if isinstance(description, str) else ""
    if isinstance(form, str) and form not in words:
        words = f"{words} ({form[:32]})".strip()
    return {"description": words} if words else {}


def _has_constraints(beside: JsonObject) -> bool:
    """Whether anything alongside a reference is more than words."""
    return any(key not in ("description", "format", "title", "default") for key in beside)


def _as_text(value: JsonValue) -> JsonValue:
    """A choice of a text as it was written: YAML and JSON read `1.10` as a number."""
    if value is None or isinstance(value, str | dict | list):
        return value
    written = getattr(value, "written", None)
    return written if isinstance(written, str) else json.dumps(value)


def _nullable(schema: JsonObject) -> JsonObject:
    """The schema, and null alongside it. It may say what it is in several ways, all of which
    hold."""
    result = {**schema}
    kinds = result.get("type")
    if kinds is not None and "null" not in (named := kinds if isinstance(kinds, list) else [kinds]):
        result["type"] = [*named, "null"]
    choices = result.get("enum")
    if isinstance(choices, list) and None not in choices:
        result["enum"] = [*choices, None]
    if result.get("const") is not None:
        result["enum"] = [result.pop("const"), None]
    either = result.get("anyOf")
    if isinstance(either, list) and {"type": "null"} not in either:
        result["anyOf"] = [*either, {"type": "null"}]
    return result


def _add(result: JsonObject, part: JsonObject) -> None:
    """Merge one more part of `allOf`: its fields, and whatever else is not set yet."""
    for key, value in part.items():
        present = result.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            result[key] = {**value, **present}
        elif key == "required" and isinstance(present, list) and isinstance(value, list):
            result[key] = [*present, *(name for name in value if name not in present)]
        elif key == "additionalProperties" and "additionalProperties" in result:
            # Each part forbids what the others add; anyone who writes that means all of them.
            result[key] = present if isinstance(present, dict) else value
        elif key not in result:
            result[key] = value
