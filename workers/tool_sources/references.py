"""References of a foreign schema, which lead within its own document and never out of it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from pydantic import JsonValue
from referencing import Registry, Resource, Specification
from referencing.jsonschema import DRAFT202012

from loopline.workers.tool_sources import ToolRefused


class References:
    """Follows `$ref` from one place of a document; `inside` is the place that a part of it is."""

    def __init__(self, resolver: Any, specification: Specification[Any]) -> None:
        self._resolver = resolver
        self._specification = specification

    @classmethod
    def of_schema(cls, schema: JsonValue) -> References:
        """References of a JSON schema: pointers, `$anchor` and `$id`."""
        return cls._build(schema, DRAFT202012)

    @classmethod
    def of_document(cls, document: JsonValue) -> References:
        """References of a document that holds schemas and other things: pointers alone."""
        return cls._build(document, Specification.OPAQUE)

    @classmethod
    def _build(cls, contents: JsonValue, specification: Specification[Any]) -> References:
        whole: Resource[Any] = specification.create_resource(contents)
        try:
            # What is not in here is not looked for: a registry fetches nothing by itself.
            registry: Registry[Any] = Registry().with_resource("", whole)
            return cls(registry.resolver_with_root(whole), specification)
        except Exception as error:  # it reads parts of a schema that nobody has checked yet
            raise ToolRefused(f"its schema can't be read: {type(error).__name__}") from error

    def inside(self, schema: JsonValue) -> References:
        """Return the resolver for a part of the schema; a part with its own `$id` is resolved by
        that."""
        if not isinstance(schema, dict) or not isinstance(schema.get("$id"), str):
            return self
        part = self._specification.create_resource(schema)
        return References(self._resolver.in_subresource(part), self._specification)

    def follow(self, reference: str) -> tuple[JsonValue, References]:
        """What a reference points at, and from which that goes on. Raises `ToolRefused`."""
        # By the letter a percent sign is escaped in a reference; not everybody does.
        for spelled in dict.fromkeys((reference, reference.replace("%", "%25"))):
            try:
                resolution = self._resolver.lookup(spelled)
            except Exception:  # noqa: BLE001, S112 - see `_build`; the loop ends in a refusal
                continue
            return resolution.contents, References(resolution.resolver, self._specification)
        if reference.startswith("#"):
            raise ToolRefused(f"its schema refers to nothing: {reference[:100]}")
        raise ToolRefused(f"it refers to another document: {quote(reference[:100], safe=_URL)}")


_URL = "/:?#[]@!$&'()*+,;=%~ "
