"""The base URL of an API, from its document and its profile."""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

from pydantic import JsonValue

from loopline.agents.records import JsonObject
from loopline.workers.tool_sources import SourceUnavailable, ToolRefused

Origin = tuple[str, str | None, int | None]


def is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def origin(url: str) -> Origin:
    """Scheme, host and port. Raises `ValueError`."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port


def base_url_of(document: JsonObject, place: str, base_url: str | None) -> str:
    """Return the API's base URL: the profile's, or the document's first server.

    A document from a URL may only name servers of its own origin. Otherwise its author could send
    the calls, and the secrets in them, anywhere. Raises `SourceUnavailable`.
    """
    if base_url is not None:
        return base_url
    server = server_url(document)
    try:
        whole = urljoin(place, server) if is_url(place) else server
        elsewhere = is_url(place) and origin(whole) != origin(place)
        odd = _forbidden_part(whole)
    except ValueError as error:
        raise SourceUnavailable(f"{place}: its server {server[:100]!r}: {error}") from error
    if not is_url(whole):
        raise SourceUnavailable(
            f"{place}: lists no server with an http(s) URL ({whole[:100]!r}); set base_url"
        )
    if odd:
        raise SourceUnavailable(f"{place}: its server {whole[:200]!r} has {odd}; set base_url")
    if elsewhere:
        raise SourceUnavailable(
            f"{place}: its server is {whole[:200]}, on another host; if that is intended, set "
            "base_url to it"
        )
    return whole


def _forbidden_part(url: str) -> str:
    """A part of the URL that an API's address must not have, in words; empty if there is none."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        return "a user name in it"
    if not parts.hostname:
        return "no host"
    if "{" in parts.netloc + parts.path or "}" in parts.netloc + parts.path:
        return "a variable without a default"
    if re.search(r"[\x00-\x20\\\x7f]", url):
        return "invalid characters"
    return ""


def server_url(node: JsonObject) -> str:
    """The first of `servers`, with its variables at their defaults; `/` if there is none."""
    servers = node.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else {}
    url = first.get("url") if isinstance(first, dict) else None
    if not isinstance(url, str) or not url.strip():
        return "/"
    variables = first.get("variables") if isinstance(first, dict) else None
    url = url.strip()
    for name, variable in variables.items() if isinstance(variables, dict) else ():
        default: JsonValue = variable.get("default") if isinstance(variable, dict) else None
        if isinstance(default, str | int | float) and not isinstance(default, bool):
            url = url.replace(f"{{{name}}}", str(getattr(default, "written", default)))
    return url


def refuse_another_server(document: JsonObject, node: JsonObject, base_url: str) -> None:
    """Raises `ToolRefused` for a node with another server than the document's, even another path on
    the same host: the call would go to the document's server."""
    url = server_url(node) if node.get("servers") else server_url(document)
    if url.rstrip("/") == server_url(document).rstrip("/"):
        return
    try:
        whole = urljoin(base_url, url)
        elsewhere = origin(whole) != origin(base_url) or _path(whole) != _path(base_url)
    except ValueError:
        elsewhere = True
    if elsewhere:
        raise ToolRefused(f"it is on a server of its own: {url[:100]}")


def _path(url: str) -> str:
    return urlsplit(url).path.rstrip("/")
