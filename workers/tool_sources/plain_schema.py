"""Simplifies an untrusted JSON schema: no references, only known keywords, bounded in size.

The result may allow more than the original (a recursive part, a pattern and a format are dropped),
never less: the server checks its arguments itself. So a schema can't keep a grammar or a validator
busy for minutes, and can't refer to anything outside its document. If generators violate the
standard (`nullable` next to an `enum` without null), the intended meaning is used.
"""

from __future__ import annotations

import json

from pydantic import JsonValue

from loopline.agents.records import JsonObject
from loopline.workers.tool_sources import ToolRefused, check_encodable
from loopline.workers.tool_sources.references import References

MAX_NODES = 1_000
"""Maximum number of nodes in a schema with all references expanded."""
MAX_DEPTH = 16
MAX_CHARS = 32_768
"""Largest plain schema, in characters of JSON."""
MAX_DESCRIPTION_CHARS = 1_024
MAX_NAME_CHARS = 128
MAX_CHOICES = 500
MAX_LENGTH_BOUND = 10_000
"""Larger length bounds are dropped: they have no use, and a grammar would count up to them."""

SMALLEST_BOUND, LARGEST_BOUND = 1e-6, 1e15
"""Other number bounds are dropped: a grammar spells bounds out by digits and fails for them."""

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_NUMBER_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_REFERENCES = ("$ref", "$dynamicRef")
_LENGTH_BOUNDS = ("minLength", "maxLength", "minItems", "maxItems")


def plain_schema(schema: JsonValue, references: References | None = None) -> JsonObject:
    """The plain schema of an object. By default, its references point into the schema itself.

    Raises `ToolRefused` for a schema that is too large, that is not an object's, or whose
    references lead nowhere.
    """
    references = References.of_schema(schema) if references is None else references
    plain = _Writer().node(schema, references, frozenset(), 0)
    kinds = plain.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise ToolRefused("its arguments are not an object")
    result: JsonObject = {**plain, "type": "object", "properties": plain.get("properties", {})}
    check_encodable(result)
    size = len(json.dumps(result))
    if size > MAX_CHARS:
        raise ToolRefused(f"its schema has {size} characters, more than {MAX_CHARS}")
    return result


class _Writer:
    def __init__(self) -> None:
        self._nodes = 0

    def node(
        self, schema: JsonValue, references: References, inside: frozenset[int], depth: int
    ) -> JsonObject:
        """A whole schema, with everything that its parts require."""
        result = self._field(schema, references, inside, depth)
        result.pop("readOnly", None)
        return result

    def _field(
        self, schema: JsonValue, references: References, inside: frozenset[int], depth: int
    ) -> JsonObject:
        """A whole schema that still has `readOnly`, for the object that requires it."""
        result = self._part(schema, references, inside, depth)
        _close(result)
        return result

    def _part(
        self, schema: JsonValue, references: References, inside: frozenset[int], depth: int
    ) -> JsonObject:
        """A schema whose required fields may be described by another part of the same `allOf`.
        `inside` contains the parts that were referred to on the way here; one that occurs again
        is recursion."""
        self._count(1)
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return {}
        references = references.inside(schema)
        reference = schema.get("$ref", schema.get("$dynamicRef"))
        if isinstance(reference, str):
            target, onwards = references.follow(reference)
            if id(target) in inside:
                return {}
            siblings = {key: value for key, value in schema.items() if key not in _REFERENCES}
            target_schema = self._part(target, onwards, inside | {id(target)}, depth + 1)
            if not _has_constraints(siblings):
                return {**target_schema, **_annotations(siblings)}
            result = self._part(siblings, references, inside, depth + 1)
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
            _add(result, self._part(part, references, inside, depth + 1))
        null_by_type = "enum" in schema and "null" in _list(result.get("type"))
        null_by_choice = None in _list(schema.get("enum"))
        is_nullable = schema.get("nullable") is True or null_by_type or null_by_choice
        return _nullable(result) if is_nullable else result

    def _count(self, parts: int) -> None:
        self._nodes += parts
        if self._nodes > MAX_NODES:
            raise ToolRefused(f"its schema has more than {MAX_NODES} parts")

    def _leaf(self, schema: JsonObject) -> JsonObject:
        result: JsonObject = {}
        named = _types_of(schema.get("type"))
        if schema.get("format") == "int-or-string":  # Kubernetes' mark on a `string`
            named = ["integer", "string"]
        if named:
            result["type"] = named[0] if len(named) == 1 else [*named]
        result.update(_annotations(schema))
        if schema.get("readOnly") is True:
            result["readOnly"] = True
        text = named == ["string"] or sorted(named) == ["null", "string"]
        choices = schema.get("enum")
        if isinstance(choices, list) and 0 < len(choices) <= MAX_CHOICES:
            result["enum"] = [_as_text(item) if text else _as_type(item, named) for item in choices]
        for key in ("const", "default"):
            value = schema.get(key)
            if key in schema and not isinstance(value, dict | list):
                result[key] = _as_text(value) if text else _as_type(value, named)
        for key in _NUMBER_BOUNDS:
            bound = schema.get(key)
            if bound is True:  # draft 4 and OpenAPI 3.0: the other bound is exclusive
                bound = schema.get(key.replace("exclusiveM", "m"))
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
                fields[name] = self._field(field, references, inside, depth + 1)
            result["properties"] = fields
        required = _list(schema.get("required"))
        self._count(len(required) // 10)
        if names := dict.fromkeys(name for name in required if isinstance(name, str)):
            result["required"] = [*names]
        others = schema.get("additionalProperties")
        patterns = schema.get("patternProperties")
        if (
            isinstance(patterns, dict)
            and patterns
            and (others is False or isinstance(others, dict))
        ):
            # The pattern of the names is dropped, so any other name may match it.
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
        """The schema of all items; empty for a tuple, whose items differ."""
        items = schema.get("items")
        if isinstance(items, dict) and "prefixItems" not in schema:
            result["items"] = self.node(items, references, inside, depth + 1)


def _types_of(declared: JsonValue) -> list[str]:
    """The types of a schema; none if one of them is unknown and so must not narrow the others. An
    unquoted `null` in a YAML list means the type."""
    listed = ["null" if kind is None else kind for kind in _list(declared)] or [declared]
    names = [kind.lower() for kind in listed if isinstance(kind, str)]
    is_known = len(names) == len(listed) and all(name in _TYPES for name in names)
    return [*dict.fromkeys(names)] if is_known else []


def _as_type(value: JsonValue, types: list[str]) -> JsonValue:
    """A choice in the schema's only type: documents also write `"1"` for an integer, and `"true"`
    for a boolean."""
    types = [kind for kind in types if kind != "null"]
    if not isinstance(value, str) or types not in (["integer"], ["number"], ["boolean"]):
        return value
    try:
        read: JsonValue = json.loads(value)
    except ValueError:
        return value
    return read if isinstance(read, bool) == (types == ["boolean"]) else value


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _close(schema: JsonObject) -> None:
    """Require only described fields that a caller sets: OpenAPI requires those of the server
    (`readOnly`) in answers only, where one schema serves requests and answers."""
    properties = schema.get("properties")
    fields: JsonObject = properties if isinstance(properties, dict) else {}
    by_server = {
        name
        for name, field in fields.items()
        if isinstance(field, dict) and field.pop("readOnly", False)
    }
    required = [
        name for name in _list(schema.pop("required", None)) if name in fields.keys() - by_server
    ]
    if required:
        schema["required"] = [*required]


def _annotations(schema: JsonObject) -> JsonObject:
    """The schema's description in words."""
    description, form = schema.get("description"), schema.get("format")
    words = description[:MAX_DESCRIPTION_CHARS] if isinstance(description, str) else ""
    if isinstance(form, str) and form not in words:
        words = f"{words} ({form[:32]})".strip()
    return {"description": words} if words else {}


def _has_constraints(siblings: JsonObject) -> bool:
    """Whether anything next to a reference is more than a description."""
    return any(key not in ("description", "format", "title", "default") for key in siblings)


def _as_text(value: JsonValue) -> JsonValue:
    """A text choice in its original spelling: YAML and JSON read `1.10` as a number."""
    if value is None or isinstance(value, str | dict | list):
        return value
    written = getattr(value, "written", None)
    return written if isinstance(written, str) else json.dumps(value)


def _nullable(schema: JsonObject) -> JsonObject:
    """The schema extended by null. A schema may constrain its value in several ways, all of which
    apply."""
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
    """Merge another part of `allOf`: its fields, and any keyword that is not set yet."""
    for key, value in part.items():
        present = result.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            result[key] = {**value, **present}
            for name, field in present.items() if key == "properties" else ():
                other = value.get(name)
                if isinstance(field, dict) and isinstance(other, dict):
                    _add(field, other)
        elif key == "enum" and isinstance(present, list) and isinstance(value, list):
            # An empty choice would be invalid; then the schema contradicts itself.
            result[key] = [item for item in present if item in value] or present
        elif key == "required" and isinstance(present, list) and isinstance(value, list):
            result[key] = [*present, *(name for name in value if name not in present)]
        elif key == "additionalProperties" and "additionalProperties" in result:
            # Strictly, each part forbids the fields of the others; schema authors mean all of them.
            result[key] = present if isinstance(present, dict) else value
        elif key not in result:
            result[key] = value
