"""Reading an OpenAPI document: from a file or a URL, JSON or YAML, with limits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import yaml
from pydantic import JsonValue, TypeAdapter

from agents.records import JsonObject
from workers.tool_sources.bounded_http import read_bounded
from workers.tool_sources.errors import SourceUnavailable
from workers.tool_sources.settings import ToolSourceSettings

MAX_DOCUMENT_BYTES = 8 << 20
MAX_VALUES = 500_000
"""Of a document with every YAML alias written out: a page of aliases can stand for billions."""

_OBJECT: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)


def is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


async def read_document(place: str, http: httpx.AsyncClient) -> JsonObject:
    """The document. Raises `SourceUnavailable` for one that can't be read or is no OpenAPI 3."""
    raw = await (_fetched(place, http) if is_url(place) else asyncio.to_thread(_file, place))
    return await asyncio.to_thread(_parsed, place, raw)


async def _fetched(url: str, http: httpx.AsyncClient) -> bytes:
    try:
        answer = await read_bounded(http, http.build_request("GET", url), MAX_DOCUMENT_BYTES)
    except httpx.HTTPError as error:
        raise SourceUnavailable(f"{url}: {type(error).__name__}: {error}") from error
    if answer.status != 200:
        raise SourceUnavailable(f"{url}: answered {answer.status}, no document")
    if answer.cut:
        raise SourceUnavailable(f"{url}: more than {MAX_DOCUMENT_BYTES} bytes")
    return answer.body


def _file(place: str) -> bytes:
    path = Path(place).expanduser()
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise SourceUnavailable(f"{path}: {error.strerror}") from error
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise SourceUnavailable(f"{path}: more than {MAX_DOCUMENT_BYTES} bytes")
    return raw


def _parsed(place: str, raw: bytes) -> JsonObject:
    try:
        text = raw.decode("utf-8-sig")
        begins_json = text.lstrip()[:1] in ("{", "[")
        value: object = json.loads(text) if begins_json else _yaml(text)
        _count(value)
        # YAML has dates and keys that are no texts: as JSON they are texts.
        document = _OBJECT.validate_json(json.dumps(value, default=str, allow_nan=False))
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise SourceUnavailable(f"{place}: no JSON or YAML object: {str(error)[:300]}") from error
    version = document.get("openapi")
    if not (isinstance(version, str) and version.startswith("3.")):
        older = "Swagger 2 (convert it to OpenAPI 3)" if "swagger" in document else repr(version)
        raise SourceUnavailable(f"{place}: needs `openapi: 3.…`, found {older[:100]}")
    return document


def _yaml(text: str) -> object:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the safe one, in C where it was built
    return yaml.load(text, Loader=loader)


def _count(value: object) -> None:
    """Raises `ValueError` for a document that is larger than it looks."""
    layer, seen = [value], 1
    while layer:
        # Before the next layer is made, which a few aliases can make larger than the memory.
        seen += sum(len(each) for each in layer if isinstance(each, dict | list))
        if seen > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values")
        layer = [
            inner
            for each in layer
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]


def base_url_of(document: JsonObject, settings: ToolSourceSettings) -> str:
    """Where the API is: as the profile says, or the document's first server.

    A document that came from a URL may name servers of its own origin alone. Otherwise whoever
    writes it could send the calls, and the secrets in them, wherever he likes.
    Raises `SourceUnavailable`.
    """
    if settings.base_url is not None:
        return settings.base_url
    place = settings.openapi or ""
    found = server_url(document)
    try:
        whole = urljoin(place, found) if is_url(place) else found
        elsewhere = is_url(place) and origin(whole) != origin(place)
    except ValueError as error:
        raise SourceUnavailable(f"{place}: its server {found[:100]!r}: {error}") from error
    if not is_url(whole):
        raise SourceUnavailable(
            f"{place}: names no server with an http(s) URL ({whole[:100]!r}); set base_url"
        )
    if elsewhere:
        raise SourceUnavailable(
            f"{place}: its server is {whole[:200]}, which is elsewhere; if that is meant, set "
            "base_url to it"
        )
    return whole


def server_url(node: JsonObject) -> str:
    """The first of `servers`, its variables at their defaults; `/` if there is none."""
    servers = node.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else {}
    url = first.get("url") if isinstance(first, dict) else None
    if not isinstance(url, str):
        return "/"
    variables = first.get("variables") if isinstance(first, dict) else None
    for name, variable in variables.items() if isinstance(variables, dict) else ():
        default: JsonValue = variable.get("default") if isinstance(variable, dict) else None
        url = url.replace(f"{{{name}}}", default if isinstance(default, str) else "")
    return url


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port
