"""Tells a call's own tags from those that its values mention: a file about calls, which a call
writes, must neither end that call nor make others.

A value ends at its end tag. If a model leaves that out, the value ends at the call's end or at the
next parameter of the tool.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from loopline.agents.records import JsonObject

_TAG = re.compile(
    r"<(?P<closes>/?)[^\s<>/]{0,20}?(?:(?P<call>function|invoke)|(?P<value>param(?:eter)?|arg_value))"
    r"(?:(?P<form>=| ?name=)\"?(?P<name>[^>\s\"=({\[,]{1,100})|(?=[\s>:]))"
)


@dataclass(frozen=True, slots=True)
class OwnTags:
    """The places of the tags that start a text's own calls and values, and whether a value is open
    at its end."""

    starts: frozenset[int]
    is_open: bool


def own_tags(
    text: str, tools: Mapping[str, JsonObject], start: int = 0, end: int | None = None
) -> OwnTags:
    """The tags between two positions. `tools`: the schemas of the parameters, by tool."""
    starts: set[int] = set()
    schemas: Mapping[str, object] = {}
    form: tuple[str, str] | None = None
    """Tag and notation of the call's first value, which its other values share."""
    in_value = call_ended = False
    calls = values = 0
    """Number of open tags that the open value mentions."""
    for tag in _TAG.finditer(text, start, len(text) if end is None else end):
        if tag["closes"]:
            if tag["call"]:
                call_ended = call_ended or (in_value and not calls)
                calls = max(0, calls - 1)
                values = values if calls else 0
            elif form is None or tag["value"] == form[0]:
                in_value = in_value and values > 0
                values = max(0, values - 1)
        elif tag["call"] and tag["name"]:
            if in_value and not call_ended:
                calls += 1
                continue
            starts.add(tag.start())
            schemas, form = parameters_of(tools.get(tag["name"], {})), None
            in_value = call_ended = False
        elif tag["value"] and form in (None, (tag["value"], tag["form"])):
            is_other = bool(schemas and tag["name"]) and tag["name"] not in schemas
            if in_value and (calls or is_other):
                values += 1
                continue
            starts.add(tag.start())
            form, in_value, calls, values = (tag["value"], tag["form"]), True, 0, 0
    return OwnTags(frozenset(starts), in_value)


def parameters_of(schema: JsonObject) -> Mapping[str, object]:
    """The schemas of a tool's parameters by name; none if its schema doesn't list them."""
    properties: object = schema.get("properties")
    return cast("dict[str, object]", properties) if isinstance(properties, dict) else {}


def kinds_of(schema: object) -> frozenset[str]:
    """The types of the values that a schema names; none if it names none."""
    if not isinstance(schema, dict):
        return frozenset()
    body = cast("dict[str, object]", schema)
    kinds = {kind for kind in _items(body.get("type")) if isinstance(kind, str)}
    for keyword in ("anyOf", "oneOf"):
        for branch in _items(body.get(keyword)):
            kinds |= kinds_of(branch)
    if not kinds:
        kinds.update(*map(kinds_of_value, _items(body.get("enum"))))
    return frozenset(kinds)


def _items(value: object) -> list[object]:
    if isinstance(value, list):
        return cast("list[object]", value)
    return [] if value is None else [value]


def kinds_of_value(value: object) -> frozenset[str]:
    """The types of JSON Schema that a value has."""
    names: dict[type, tuple[str, ...]] = {
        str: ("string",), bool: ("boolean",), int: ("integer", "number"), float: ("number",),
        list: ("array",), dict: ("object",),
    }  # fmt: skip
    return frozenset(names.get(type(value), ("null",)))
