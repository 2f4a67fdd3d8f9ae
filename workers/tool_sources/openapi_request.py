"""The HTTP request for one call of an operation."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from urllib.parse import quote, unquote, unquote_plus, urlsplit

import httpx
from pydantic import JsonValue

from loopline.agents.records import JsonObject
from loopline.agents.tools import ToolFailed
from loopline.workers.tool_sources.credentials import Credentials
from loopline.workers.tool_sources.openapi_operation import Body, Operation, Parameter, Style
from loopline.workers.tool_sources.openapi_servers import origin
from loopline.workers.tool_sources.openapi_styles import (
    form_encode,
    header_value,
    pairs,
    path_part,
    percent_encode,
    plain,
)

_LITERAL = "/%:@!$&'()*+,;=~-._"
"""Characters that are kept in the document's own path or query, where `%` starts an escape."""
_NAME = re.compile(r"\{\+?([^{}]+)\}")
_LINE_BREAK = re.compile(r"[\r\n\x00]")
_FIELD = Style(name="form", explode=True)
_JSON_FIELD = Style(name="json", explode=False)


def request_of(
    http: httpx.AsyncClient,
    base_url: str,
    operation: Operation,
    arguments: JsonObject,
    credentials: Credentials,
    idempotency_key: str = "",
) -> httpx.Request:
    """Build the request. `idempotency_key`, if given, is sent in the header that most APIs use
    (draft-ietf-httpapi-idempotency-key-header), unless the arguments set it.

    Raises `ToolFailed` for arguments that can't be sent in the way the document requires. Whatever
    the document, the arguments or the base URL contain, the request goes to the base URL's own
    host, because it carries the credentials.
    """
    in_path: dict[str, str] = {}
    query: list[str] = []
    headers: dict[bytes, bytes] = {}
    cookies: list[str] = []
    for argument, parameter in operation.parameters.items():
        if argument not in arguments:
            continue
        value = arguments[argument]
        style = parameter.style
        match parameter.place:
            case "path":
                in_path[parameter.name] = _path_part(argument, parameter, value)
            case "query" if value is not None:
                query += pairs(parameter.name, style, value, percent_encode)
            case "header" if value is not None:
                headers[parameter.name.encode()] = _header(argument, header_value(style, value))
            case "cookie" if value is not None:
                cookies += pairs(parameter.name, style, value, percent_encode)
            case _:
                pass
    for name, value in credentials.headers.items():
        if name.lower() == "cookie":
            secret = _header(name, value).decode()
            names = {part.partition("=")[0].strip() for part in secret.split(";")}
            cookies = [*_without(names, cookies), secret]
        else:
            headers[name.encode()] = _header(name, value)
    if idempotency_key and not any(name.lower() == b"idempotency-key" for name in headers):
        headers[b"Idempotency-Key"] = idempotency_key.encode()
    if cookies:
        headers[b"Cookie"] = "; ".join(cookies).encode()
    secrets = [
        f"{percent_encode(key)}={percent_encode(value)}" for key, value in credentials.query.items()
    ]
    content, kind, files = None, None, None
    if operation.body is not None and "body" in arguments:
        content, kind, files = _content(operation.body, arguments["body"])
    if kind is not None:
        headers[b"Content-Type"] = kind.encode()
    url = _url(base_url, operation, in_path, query, secrets)
    try:
        built = http.build_request(
            operation.method, url, headers=headers, content=content, files=files
        )
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolFailed(f"no request can be made of these arguments: {error}"[:300]) from error
    if origin(str(built.url)) != origin(base_url) or built.url.userinfo:
        raise ToolFailed("these arguments would send the request to another server")
    return built


def _url(
    base_url: str,
    operation: Operation,
    in_path: dict[str, str],
    query: list[str],
    secrets: list[str],
) -> str:
    base = urlsplit(base_url)
    path, _, literal = operation.path.partition("?")
    whole = base.path.rstrip("/") + _fill_template(path, in_path)
    if any(unquote(segment) in (".", "..") for segment in whole.split("/")):
        raise ToolFailed(f"{', '.join(in_path)}: together they lead to another path")
    fixed = [*base.query.split("&"), *_fill_template(literal, in_path).split("&")]
    names = {unquote(secret.partition("=")[0]) for secret in secrets}
    query_parts = [*_without(names, (part for part in (*fixed, *query) if part)), *secrets]
    return f"{base.scheme}://{base.netloc}{whole}" + (
        f"?{'&'.join(query_parts)}" if query_parts else ""
    )


def _without(names: Collection[str], pairs: Iterable[str]) -> list[str]:
    """The pairs with other names. A secret is sent once, also if the document's path or an object
    whose fields become parameters has its name."""
    return [pair for pair in pairs if unquote_plus(pair.partition("=")[0]) not in names]


def _fill_template(template: str, in_path: dict[str, str]) -> str:
    """Fill in all values at once, since a value may look like a name."""
    parts = _NAME.split(template)
    return "".join(
        in_path[part] if place % 2 else quote(part, safe=_LITERAL)
        for place, part in enumerate(parts)
    )


def _path_part(argument: str, parameter: Parameter, value: JsonValue) -> str:
    text = path_part(parameter.name, parameter.style, value)
    # A proxy that decodes escapes would turn `..%2F` into a path to another operation, too.
    steps = re.split(r"[/\\]", unquote(text))
    if value in (None, "", [], {}) or steps == [""] or any(step in (".", "..") for step in steps):
        raise ToolFailed(f"{argument}: {plain(value)[:100]!r} can't be part of a path")
    return text


def _header(name: str, value: str) -> bytes:
    if _LINE_BREAK.search(value):
        raise ToolFailed(f"{name}: a header can't carry a line break")
    return value.strip().encode(errors="replace")


def _content(
    body: Body, value: JsonValue
) -> tuple[bytes | None, str | None, list[tuple[str, tuple[None, bytes, str | None]]] | None]:
    """The content of a body and its media type, or the parts of a multipart form."""
    if body.kind == "json":
        return json.dumps(value).encode(), body.media, None
    if body.kind == "text":
        return plain(value).encode(errors="replace"), f"{body.media}; charset=utf-8", None
    if not isinstance(value, dict):
        raise ToolFailed("body: a form is an object of its fields")
    if body.kind == "multipart":
        return None, None, [part for item in value.items() for part in _parts(body, *item)]
    fields = [
        pair
        for name, inner in value.items()
        for pair in pairs(name, _field_style(body, name, inner), inner, form_encode)
    ]
    return "&".join(fields).encode(), body.media, None


def _field_style(body: Body, name: str, value: JsonValue) -> Style:
    """Style of a form field. By default, a list is repeated and an object is JSON."""
    return body.styles.get(name, _JSON_FIELD if isinstance(value, dict) else _FIELD)


def _parts(
    body: Body, name: str, value: JsonValue
) -> list[tuple[str, tuple[None, bytes, str | None]]]:
    kind = body.kinds.get(name)
    as_json = kind is not None and kind.endswith("json")
    values = value if isinstance(value, list) and not as_json else [value]
    return [
        (
            name,
            (
                None,
                (json.dumps(item) if as_json else plain(item)).encode(errors="replace"),
                kind or ("application/json" if isinstance(item, dict | list) else None),
            ),
        )
        for item in values
        if item is not None
    ]
