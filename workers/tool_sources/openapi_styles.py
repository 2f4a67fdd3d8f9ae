"""Encodes argument values as parts of a request: https://spec.openapis.org/oas/v3.1.1#style-values

Where the standard is silent (lists within a `deepObject`), the meaning in Stripe's documents is
used: `items[0][price]=3`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from urllib.parse import quote, quote_plus

from pydantic import JsonValue

from loopline.workers.tool_sources.openapi_operation import Style

Escape = Callable[[str], str]

_RESERVED = ":/?@!$'()*,;"
"""Characters that `allowReserved` keeps, without those that would end a value, a query or a path
(`&=+#[]`)."""
_RESERVED_IN_PATH = _RESERVED.replace("?", "")
"""Reserved characters without the question mark, which ends a path: the text before it could become
`.` or `..`."""


def percent_encode(text: str) -> str:
    """Percent-encode a text for a path or a query."""
    return quote(text.encode(errors="replace"), safe="")


def form_encode(text: str) -> str:
    """Encode a text for a body of type x-www-form-urlencoded."""
    return quote_plus(text.encode(errors="replace"), safe="")


def _escape_unreserved(text: str) -> str:
    return quote(text.encode(errors="replace"), safe=_RESERVED)


def _escape_unreserved_path(text: str) -> str:
    return quote(text.encode(errors="replace"), safe=_RESERVED_IN_PATH)


def plain(value: JsonValue) -> str:
    """A value as text: true, 3, JSON for lists and objects; empty for null."""
    match value:
        case str():
            return value
        case None:
            return ""
        case float() if value.is_integer() and abs(value) < 2**53:
            return str(int(value))  # models write 3.0 for an integer
        case _:
            return json.dumps(value, ensure_ascii=False)


def pairs(name: str, style: Style, value: JsonValue, escape: Escape) -> Iterator[str]:
    """`name=value` pairs of a query, a form or a cookie, one or more depending on the style."""
    key = escape(name)
    write = _escape_unreserved if style.reserved else escape
    match value:
        case _ if style.name == "json":
            yield f"{key}={escape(json.dumps(value, ensure_ascii=False))}"
        case dict() | list() if style.name == "deepObject":
            for place, inner in _deep_object(name, value):
                yield f"{escape(place)}={write(plain(inner))}"
        case dict() if style.explode:
            for inner_name, inner in value.items():
                if inner is not None:
                    yield f"{escape(inner_name)}={write(plain(inner))}"
        case list() if style.explode:
            for inner in value:
                yield f"{key}={write(plain(inner))}"
        case dict() | list():
            between = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(style.name, ",")
            if value:
                yield f"{key}={between.join(map(write, _flatten(value)))}"
        case _:
            yield f"{key}={write(plain(value))}"


def path_part(name: str, style: Style, value: JsonValue) -> str:
    """Text that replaces `{name}` in a path."""
    write = _escape_unreserved_path if style.reserved else percent_encode
    if style.name == "json":
        return percent_encode(json.dumps(value, ensure_ascii=False))
    begin, between = {"label": (".", "."), "matrix": (";", ";")}.get(style.name, ("", ","))
    matrix = style.name == "matrix"
    match value:
        case dict() if style.explode:
            fields = (
                f"{percent_encode(key)}={write(plain(inner))}" for key, inner in value.items()
            )
            return begin + between.join(fields)
        case list() if style.explode and matrix:
            return begin + between.join(
                f"{percent_encode(name)}={write(plain(item))}" for item in value
            )
        case dict() | list():
            joint = between if style.explode else ","
            text = joint.join(map(write, _flatten(value)))
        case _:
            text = write(plain(value))
    return f"{begin}{percent_encode(name)}={text}" if matrix else begin + text


def header_value(style: Style, value: JsonValue) -> str:
    """The text of a header, not escaped, as headers require."""
    match value:
        case _ if style.name == "json":
            return json.dumps(value)
        case dict() if style.explode:
            return ",".join(f"{key}={plain(inner)}" for key, inner in value.items())
        case dict() | list():
            return ",".join(_flatten(value))
        case _:
            return plain(value)


def _flatten(value: dict[str, JsonValue] | list[JsonValue]) -> Iterator[str]:
    if isinstance(value, list):
        yield from map(plain, value)
        return
    for key, inner in value.items():
        if inner is not None:
            yield from (key, plain(inner))


def _deep_object(name: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _deep_object(f"{name}[{key}]", inner)
        case list():
            for place, inner in enumerate(value):
                yield from _deep_object(f"{name}[{place}]", inner)
        case _:
            yield name, value
