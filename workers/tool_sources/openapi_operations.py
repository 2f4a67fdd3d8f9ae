"""The operations of an OpenAPI document as tools: what each takes, and where that goes.

An operation's arguments are its parameters by name and its body as `body`. Cookies and files are
not sent; an operation that needs one is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urljoin, urlsplit

from pydantic import JsonValue

from agents.records import JsonObject
from workers.tool_sources.catalogue import ListedTool
from workers.tool_sources.errors import ToolRefused
from workers.tool_sources.openapi_document import origin, server_url
from workers.tool_sources.plain_schema import resolve

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
MAX_OPERATIONS = 2_000
MAX_REFERENCES = 8
"""One after the other, before something that is no schema."""

Place = Literal["path", "query", "header"]
BodyKind = Literal["json", "form"]

_NOT_SENT = frozenset(
    {"accept", "content-type", "authorization", "host", "content-length", "transfer-encoding"}
    | {"connection", "cookie", "proxy-authorization"}
)
"""Headers that are no arguments, whatever the document says; the first three by the standard."""
_PATH_NAME = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Parameter:
    """Where one argument goes."""

    name: str
    place: Place
    style: str
    explode: bool
    required: bool


@dataclass(frozen=True)
class Operation:
    """One operation."""

    method: str
    path: str
    parameters: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    """By argument name."""
    body_argument: str | None = None
    body_kind: BodyKind = "json"
    body_type: str = "application/json"


@dataclass(frozen=True)
class Operations:
    """What a document offers."""

    listed: tuple[ListedTool, ...]
    by_name: dict[str, Operation]
    left_out: tuple[str, ...]


def operations_of(document: JsonObject, base_url: str) -> Operations:
    """Every operation that can be called with named arguments at the API's own server."""
    listed: list[ListedTool] = []
    by_name: dict[str, Operation] = {}
    left_out: list[str] = []
    for method, path, shared, node in _nodes(document):
        given = node.get("operationId")
        name = given if isinstance(given, str) and given else f"{method}_{path}"
        try:
            if name in by_name:
                raise ToolRefused("there are two operations of this name")
            _refuse_another_server(document, node if node.get("servers") else shared, base_url)
            operation, schema = _operation(document, method, path, shared, node)
        except ToolRefused as error:
            left_out.append(f"{name[:100]}: {error}")
            continue
        by_name[name] = operation
        listed.append(ListedTool(name, _told(node, method, path), schema, document))
    return Operations(tuple(listed), by_name, tuple(left_out))


def _nodes(document: JsonObject) -> Iterator[tuple[str, str, JsonObject, JsonObject]]:
    """Method, path, what the path's operations share, and the operation."""
    paths = document.get("paths")
    count = 0
    for path, shared in paths.items() if isinstance(paths, dict) else ():
        if not isinstance(shared, dict):
            continue
        for method in METHODS:
            node = shared.get(method)
            if isinstance(node, dict):
                count += 1
                if count > MAX_OPERATIONS:
                    return
                yield method, path, shared, node


def _refuse_another_server(document: JsonObject, node: JsonObject, base_url: str) -> None:
    """Raises `ToolRefused` for a node that is not where the document's server is, be it on another
    path of the same host: a call would go to where the others are."""
    url = server_url(node) if node.get("servers") else server_url(document)
    if url == server_url(document):
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


def _told(node: JsonObject, method: str, path: str) -> str:
    parts = [node.get("summary"), node.get("description")]
    words = list(dict.fromkeys(part.strip() for part in parts if isinstance(part, str)))
    return "\n".join(word for word in words if word) or f"{method.upper()} {path}"


def _operation(
    document: JsonObject, method: str, path: str, shared: JsonObject, node: JsonObject
) -> tuple[Operation, JsonObject]:
    parameters: dict[str, Parameter] = {}
    properties: JsonObject = {}
    required: list[JsonValue] = []
    for found in _parameters(document, shared, node):
        parameter, schema = _parameter(found)
        if parameter is None:
            continue
        argument = parameter.name
        if argument in parameters or argument == "body":
            argument = f"{parameter.place}_{parameter.name}"
        parameters[argument] = parameter
        properties[argument] = schema
        if parameter.required:
            required.append(argument)
    in_path = {each.name for each in parameters.values() if each.place == "path"}
    if unknown := set(_PATH_NAME.findall(path)) - in_path:
        raise ToolRefused(f"its path has {sorted(unknown)}, which it does not describe")
    body, kind, media = _body(document, node)
    if body is not None:
        properties["body"] = body["schema"]
        if body["required"]:
            required.append("body")
    schema: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    argument = "body" if body is not None else None
    return Operation(method.upper(), path, parameters, argument, kind, media), schema


def _parameters(document: JsonObject, *nodes: JsonObject) -> list[JsonObject]:
    """The path's parameters and the operation's, which win."""
    found: dict[tuple[JsonValue, JsonValue], JsonObject] = {}
    for node in nodes:
        listed = node.get("parameters")
        for each in listed if isinstance(listed, list) else ():
            parameter = _dereferenced(document, each)
            name, place = parameter.get("name"), parameter.get("in")
            if isinstance(name, str) and isinstance(place, str):
                found[name, place] = parameter
    return list(found.values())


def _parameter(node: JsonObject) -> tuple[Parameter | None, JsonObject]:
    name, place = str(node["name"]), str(node["in"])
    required = node.get("required") is True or place == "path"
    if place not in ("path", "query", "header"):
        if required:
            raise ToolRefused(f"it needs the {place} parameter {name[:64]!r}")
        return None, {}
    if place == "header" and name.lower() in _NOT_SENT:
        return None, {}
    schema = node.get("schema")
    content = node.get("content")
    style = node.get("style")
    explode = node.get("explode")
    by_default = "form" if place == "query" else "simple"
    used = "json" if isinstance(content, dict) else style if isinstance(style, str) else by_default
    inner: JsonObject = dict(schema) if isinstance(schema, dict) else {}
    told = node.get("description")
    if isinstance(told, str) and "description" not in inner:
        inner["description"] = told
    exploded = explode if isinstance(explode, bool) else used == "form"
    return Parameter(name, place, used, exploded, required), inner


def _body(document: JsonObject, node: JsonObject) -> tuple[JsonObject | None, BodyKind, str]:
    if "requestBody" not in node:
        return None, "json", ""
    body = _dereferenced(document, node["requestBody"])
    content = body.get("content")
    required = body.get("required") is True
    for media, described in content.items() if isinstance(content, dict) else ():
        bare = media.partition(";")[0].strip().lower()
        kind: BodyKind | None = (
            "json"
            if bare == "application/json" or bare.endswith("+json")
            else "form"
            if bare == "application/x-www-form-urlencoded"
            else None
        )
        if kind is not None:
            schema = described.get("schema") if isinstance(described, dict) else None
            told: JsonObject = {"schema": schema or {}, "required": required}
            return told, kind, bare
    if required:
        kinds = ", ".join(content) if isinstance(content, dict) else "none"
        raise ToolRefused(f"it needs a body of another kind: {kinds[:100]}")
    return None, "json", ""


def _dereferenced(document: JsonObject, node: JsonValue) -> JsonObject:
    for _ in range(MAX_REFERENCES):
        reference = node.get("$ref") if isinstance(node, dict) else None
        if not isinstance(reference, str):
            break
        node = resolve(document, reference)
    if not isinstance(node, dict) or "$ref" in node:
        raise ToolRefused("a parameter or body of it refers to nothing")
    return node
