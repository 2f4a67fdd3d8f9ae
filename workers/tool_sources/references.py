"""Resolves the references of an untrusted schema, only within its own document."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from pydantic import JsonValue
from referencing import Registry, Resource, Specification
from referencing.jsonschema import DRAFT202012

from loopline.agents.records import JsonObject
from loopline.workers.tool_sources import ToolRefused


class References:
    """Follows `$ref` from one place of a document; `inside` moves to a part of that place."""

    def __init__(self, resolver: Any, specification: Specification[Any], root: JsonValue) -> None:
        self._resolver = resolver
        self._specification = specification
        self._root = root

    @classmethod
    def of_schema(cls, schema: JsonValue) -> References:
        """References of a JSON schema: pointers, `$anchor` and `$id`."""
        return cls._build(schema, DRAFT202012)

    @classmethod
    def of_document(cls, document: JsonValue) -> References:
        """References of a document that contains schemas and other things: only pointers."""
        return cls._build(document, Specification.OPAQUE)

    @classmethod
    def _build(cls, contents: JsonValue, specification: Specification[Any]) -> References:
        whole: Resource[Any] = specification.create_resource(contents)
        try:
            # Nothing outside the document is found: a registry fetches nothing by itself.
            registry: Registry[Any] = Registry().with_resource("", whole)
            return cls(registry.resolver_with_root(whole), specification, contents)
        except Exception as error:  # it parses parts of a schema that have not been checked yet
            raise ToolRefused(f"its schema can't be read: {type(error).__name__}") from error

    def inside(self, schema: JsonValue) -> References:
        """Return the resolver for a part of the schema; a part with its own `$id` is the base of
        its references."""
        identifier = schema.get("$id") if isinstance(schema, dict) else None
        if not isinstance(identifier, str) or identifier.startswith("#"):
            return self
        part = self._specification.create_resource(schema)
        return References(self._resolver.in_subresource(part), self._specification, self._root)

    def follow(self, reference: str) -> tuple[JsonValue, References]:
        """The target of a reference, and the resolver for the target. Raises `ToolRefused`."""
        # By the standard, a percent sign in a reference is escaped; not every author does so.
        for spelled in dict.fromkeys((reference, reference.replace("%", "%25"))):
            try:
                resolution = self._resolver.lookup(spelled)
            except Exception:  # noqa: BLE001, S112 - see `_build`; the loop ends in a refusal
                continue
            onwards = References(resolution.resolver, self._specification, self._root)
            return resolution.contents, onwards
        if reference.startswith("#") and (part := _named_part(self._root, reference)) is not None:
            return part, self
        if reference.startswith("#"):
            raise ToolRefused(f"a reference in its schema leads nowhere: {reference[:100]}")
        raise ToolRefused(f"it refers to another document: {quote(reference[:100], safe=_URL)}")


_URL = "/:?#[]@!$&'()*+,;=%~ "


def _named_part(root: JsonValue, name: str) -> JsonObject | None:
    """The part that drafts 4 to 7 name by an identifier: `"$id": "#name"`, once `"id": "#name"`."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if name in (node.get("$id"), node.get("id")):
                return node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return None
