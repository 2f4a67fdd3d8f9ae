"""How an operation's body is sent, by the media types in its document."""

from __future__ import annotations

from pydantic import JsonValue

from loopline.agents.records import JsonObject
from loopline.workers.tool_sources import ToolRefused
from loopline.workers.tool_sources.openapi_operation import Body, BodyKind, Style
from loopline.workers.tool_sources.references import References

MAX_REFERENCES = 8
MAX_PARTS = 100
"""Maximum number of parts of an `allOf` that are searched for files."""
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_TEXTS = frozenset({"application/xml", "application/yaml", "application/x-yaml"} | {
    "application/graphql", "application/x-ndjson", "application/jsonl", "application/sql",
    "application/javascript",
})  # fmt: skip
_FORM_STYLES = ("form", "spaceDelimited", "pipeDelimited", "deepObject")
_RANKS = (_JSON, "application/merge-patch+json")
"""Preferred media types if a document offers several: Kubernetes lists a patch of steps before the
one that looks like its object."""


def body_of(described: JsonObject, references: References) -> tuple[Body, JsonValue] | None:
    """The body and its schema; None for an optional body that can't be sent.

    Raises `ToolRefused` for a required body that can't be sent.
    """
    content = described.get("content")
    kinds: JsonObject = content if isinstance(content, dict) else {}
    reasons: list[str] = []
    for media in sorted(kinds, key=_rank):
        inner = kinds[media]
        try:
            return _body(media, inner if isinstance(inner, dict) else {}, references)
        except ToolRefused as error:
            reasons.append(f"{media} ({error})" if str(error) else media)
    if described.get("required") is True:
        raise ToolRefused(f"it needs a body of another kind: {', '.join(reasons)[:200] or 'none'}")
    return None


def is_json(media: str) -> bool:
    """Whether a value of this media type is written as JSON."""
    return _kind(_media_type(media)) == "json"


def _media_type(media: str) -> str:
    return media.partition(";")[0].strip().lower()


def _rank(media: str) -> int:
    bare = _media_type(media)
    if bare in _RANKS:
        return _RANKS.index(bare)
    kinds: list[BodyKind | None] = ["json", "form", "multipart", "text", None]
    # Among media types of one kind, the first: sorting keeps the document's order.
    return len(_RANKS) + kinds.index(_kind(bare))


def _kind(bare: str) -> BodyKind | None:
    if bare in (_JSON, "text/json", "*/*", "application/*") or bare.endswith("+json"):
        return "json"
    if bare in (_FORM, _MULTIPART):
        return "form" if bare == _FORM else "multipart"
    if bare.startswith("text/") or bare in _TEXTS or bare.endswith(("+xml", "+yaml")):
        return "text"
    return None


def _body(media: str, described: JsonObject, references: References) -> tuple[Body, JsonValue]:
    bare = _media_type(media)
    kind = _kind(bare)
    schema = described.get("schema")
    if kind == "json":
        sent = _JSON if "*" in bare else bare
        return Body(kind="json", media=sent), schema if isinstance(schema, dict) else {}
    whole = _whole(schema, references)
    if kind == "text":
        if whole.get("type", "string") != "string" or "$ref" in whole:
            raise ToolRefused("its schema is not of type string")
        sent = "text/plain" if "*" in bare else bare
        return Body(kind="text", media=sent), {**whole, "type": "string"}
    if kind == "form":
        styles = {name: _style(encoding) for name, encoding in _encodings(described).items()}
        return Body(kind="form", media=bare, styles=styles), schema if schema else {}
    if kind == "multipart":
        return _multipart(bare, whole, described, references)
    raise ToolRefused("")


def _encodings(described: JsonObject) -> dict[str, JsonObject]:
    encoding = described.get("encoding")
    listed = encoding.items() if isinstance(encoding, dict) else ()
    return {name: value for name, value in listed if isinstance(value, dict)}


def _style(encoding: JsonObject) -> Style:
    """Style of a form field. OpenAPI's rule: a style, if there is one, takes precedence over a
    content type."""
    named, explode = encoding.get("style"), encoding.get("explode")
    reserved = encoding.get("allowReserved") is True
    has_style = named in _FORM_STYLES or isinstance(explode, bool) or reserved
    media = encoding.get("contentType")
    if not has_style and isinstance(media, str) and _kind(_media_type(media)) == "json":
        return Style(name="json", explode=False)
    name = str(named) if named in _FORM_STYLES else "form"
    exploded = explode if isinstance(explode, bool) else name == "form"
    return Style(name=name, explode=exploded, reserved=reserved)


def _multipart(
    media: str, whole: JsonObject, described: JsonObject, references: References
) -> tuple[Body, JsonValue]:
    """A multipart body with the fields that are not files."""
    properties = whole.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise ToolRefused("")
    encodings = _encodings(described)
    listed = whole.get("required")
    required = listed if isinstance(listed, list) else []
    fields: JsonObject = {}
    kinds: dict[str, str] = {}
    for name, property_schema in properties.items():
        content_type = encodings.get(name, {}).get("contentType")
        kind = content_type.partition(",")[0].strip() if isinstance(content_type, str) else ""
        if _is_file(_whole(property_schema, references), kind, references):
            if name in required:
                raise ToolRefused(f"{name[:64]} is a file")
            continue
        fields[name] = property_schema
        if kind:
            kinds[name] = kind
    schema: JsonObject = {**whole, "properties": fields, "required": [*required]}
    return Body(kind="multipart", media=media, kinds=kinds), schema


def _is_file(schema: JsonObject, kind: str, references: References) -> bool:
    items = schema.get("items")
    if isinstance(items, dict):
        schema = _whole(items, references)
    for key in ("anyOf", "oneOf"):  # a file or null
        choices = schema.get(key)
        for choice in choices if isinstance(choices, list) else ():
            inner = _whole(choice, references)
            nested = inner.get("items")
            if _is_binary(inner) or _is_binary(_whole(nested, references)):
                return True
    return _is_binary(schema) or (bool(kind) and _kind(_media_type(kind)) is None)


def _is_binary(schema: JsonObject) -> bool:
    media = schema.get("contentMediaType")
    return schema.get("format") in ("binary", "byte") or (
        isinstance(media, str) and _kind(_media_type(media)) is None
    )


def _whole(schema: JsonValue, references: References, depth: int = 0) -> JsonObject:
    """The schema itself, in place of references to it, with the fields of its `allOf`."""
    for _ in range(MAX_REFERENCES):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(schema, dict) or not isinstance(reference, str):
            break
        target, _inside = references.follow(reference)
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **siblings} if isinstance(target, dict) else siblings
    if not isinstance(schema, dict):
        return {}
    listed = schema.get("allOf")
    parts = listed if isinstance(listed, list) and depth < MAX_REFERENCES else []
    for part in parts[:MAX_PARTS]:
        inner = _whole(part, references, depth + 1)
        fields, own_fields = inner.get("properties"), schema.get("properties")
        required, own_required = inner.get("required"), schema.get("required")
        schema = {**inner, **{key: value for key, value in schema.items() if key != "allOf"}}
        if isinstance(fields, dict) and isinstance(own_fields, dict):
            schema["properties"] = {**fields, **own_fields}
        if isinstance(required, list) and isinstance(own_required, list):
            schema["required"] = [*own_required, *required]
    return schema
