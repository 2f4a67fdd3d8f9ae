"""Tools in few tokens: a signature and a sentence a line, for models with a short context."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import JsonValue

from loopline.agents.records import JsonObject, ToolSpec

_SHORT = {"string": "", "integer": "int", "number": "number", "boolean": "bool", "array": "list",
          "object": "object"}  # fmt: skip
_MAX_CHOICES = 6
"""Number of choices above which only the first and the last are shown."""


def compact_documentation(tools: Iterable[ToolSpec]) -> str:
    """One line for each tool: `book_flight(flight, seats: int) Book seats on a flight`. A string
    has no type; an optional parameter ends in `?`."""
    return "\n".join(f"{signature(tool)} {tool.description}" for tool in tools)


def signature(tool: ToolSpec) -> str:
    """Name and parameters of a tool."""
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    names = required if isinstance(required, list) else []
    parameters = [
        _parameter(name, schema, optional=name not in names)
        for name, schema in (properties.items() if isinstance(properties, dict) else ())
    ]
    return f"{tool.name}({', '.join(parameters)})"


def _parameter(name: str, schema: JsonValue, *, optional: bool) -> str:
    kind = _kind(schema) if isinstance(schema, dict) else ""
    return f"{name}{'?' if optional else ''}{': ' if kind else ''}{kind}"


def _kind(schema: JsonObject) -> str:
    choices = schema.get("enum")
    if isinstance(choices, list):
        excerpt = choices if len(choices) <= _MAX_CHOICES else [choices[0], "..", choices[-1]]
        return "|".join(str(choice) for choice in excerpt).replace("|..|", "..")
    kind = schema.get("type")
    return _SHORT.get(kind, "") if isinstance(kind, str) else ""
