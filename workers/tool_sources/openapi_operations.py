"""The operations of an OpenAPI document as tools: their arguments, and where each one goes.

An operation's arguments are its parameters by name and its body as `body`. Files are not sent; an
operation that requires one is omitted. So is a parameter that the profile sets to a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import cast
from urllib.parse import unquote

from pydantic import JsonValue

from loopline.agents.records import JsonObject
from loopline.agents.tools.answers import replace_surrogates
from loopline.workers.tool_sources import ToolRefused, check_encodable
from loopline.workers.tool_sources.catalogue import MAX_LEFT_OUT, ListedTool
from loopline.workers.tool_sources.document_text import as_written
from loopline.workers.tool_sources.openapi_bodies import body_of, is_json
from loopline.workers.tool_sources.openapi_operation import Body, Operation, Parameter, Place, Style
from loopline.workers.tool_sources.openapi_servers import refuse_another_server
from loopline.workers.tool_sources.references import References

METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace", "query")
MAX_OPERATIONS = 2_000
"""Maximum number of operations that `allow` may match."""
MAX_REFERENCES = 8
"""Maximum number of consecutive references to anything that is not a schema."""

PATH_NAME = re.compile(r"\{\+?([^{}]+)\}")
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Allowed names of headers, cookies and methods."""
_NOT_SENT = frozenset(
    {"accept", "content-type", "authorization", "host", "content-length", "transfer-encoding"}
    | {"connection", "cookie", "proxy-authorization"}
)
"""Headers that are never arguments, even if listed; the first three by the standard."""
_DEFAULT_STYLE = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form", "cookie"),
}


@dataclass(frozen=True)
class OperationFilter:
    """A profile's restrictions on a document."""

    allow: Sequence[str] = ("*",)
    headers: frozenset[str] = frozenset()
    """Header names in lower case. They and `query` are sent with each call, so a model must not set
    them again."""
    query: frozenset[str] = frozenset()


@dataclass
class Operations:
    """The operations of a document."""

    listed: list[ListedTool] = field(default_factory=list[ListedTool])
    by_name: dict[str, Operation] = field(default_factory=dict[str, Operation])
    left_out: list[str] = field(default_factory=list[str])

    def leave_out(self, name: str, why: object) -> None:
        if len(self.left_out) < MAX_LEFT_OUT:
            self.left_out.append(replace_surrogates(f"{name[:100]}: {why}"))


def operations_of(document: JsonObject, base_url: str, wanted: OperationFilter) -> Operations:
    """Every allowed operation that can be called with named arguments on the API's own server."""
    reader = _Reader(document, base_url, wanted)
    operations = reader.found
    for method, path, shared, node in reader.nodes():
        operation_id = as_written(node.get("operationId"))
        name = (
            operation_id
            if isinstance(operation_id, str) and operation_id
            else f"{method.lower()}_{path}"
        )
        if not any(fnmatchcase(name, pattern) for pattern in wanted.allow):
            continue
        if len(operations.by_name) >= MAX_OPERATIONS:
            operations.leave_out(
                name, f"a document offers at most {MAX_OPERATIONS} operations; narrow its `allow`"
            )
            break
        try:
            if name in operations.by_name:
                raise ToolRefused("there are two operations with this name")
            operation, schema = reader.operation(method, path, shared, node)
            check_encodable(operation.model_dump())
        except ToolRefused as error:
            operations.leave_out(name, error)
            continue
        operations.by_name[name] = operation
        description = _describe_operation(node, method, path)
        operations.listed.append(ListedTool(name, description, schema, reader.references))
    return operations


class _Reader:
    def __init__(self, document: JsonObject, base_url: str, wanted: OperationFilter) -> None:
        self.found = Operations()
        self.references = References.of_document(document)
        self._document = document
        self._base_url = base_url
        self._wanted = wanted

    def nodes(self) -> Iterator[tuple[str, str, JsonObject, JsonObject]]:
        """Method, path, the path's shared properties, and the operation."""
        paths = self._document.get("paths")
        for path, item in paths.items() if isinstance(paths, dict) else ():
            if path.startswith("x-"):
                continue
            try:
                shared = self._path_item(item)
            except ToolRefused as error:
                self.found.leave_out(path, error)
                continue
            for method in METHODS:
                node = shared.get(method)
                if isinstance(node, dict):
                    yield method.upper(), path, shared, node
            others = shared.get("additionalOperations")  # since OpenAPI 3.2
            for method, node in others.items() if isinstance(others, dict) else ():
                if isinstance(node, dict):
                    yield method, path, shared, node

    def _path_item(self, item: JsonValue) -> JsonObject:
        if not isinstance(item, dict):
            return {}
        if isinstance(item.get("$ref"), str):
            return {**self._dereference(item), **item}
        return item

    def operation(
        self, method: str, path: str, shared: JsonObject, node: JsonObject
    ) -> tuple[Operation, JsonObject]:
        """An operation and the schema of its arguments. Raises `ToolRefused`."""
        if TOKEN.fullmatch(method) is None:
            raise ToolRefused(f"{method[:32]!r} is not a valid method")
        _check_path(path)
        refuse_another_server(
            self._document, node if node.get("servers") else shared, self._base_url
        )
        in_path = set(PATH_NAME.findall(path))
        parameters: dict[str, Parameter] = {}
        properties: JsonObject = {}
        required: list[JsonValue] = []
        for parameter_node in self._parameters(shared, node):
            parameter, schema = self._parameter(parameter_node, path)
            if parameter is None or (parameter.place == "path" and parameter.name not in in_path):
                continue
            argument = parameter.name
            if argument in parameters or argument == "body":
                argument = f"{parameter.place}_{parameter.name}"
            while argument in parameters:
                argument = f"{argument}_"
            parameters[argument] = parameter
            properties[argument] = schema
            if parameter.required:
                required.append(argument)
        path_names = {
            path_parameter.name
            for path_parameter in parameters.values()
            if path_parameter.place == "path"
        }
        if unknown := in_path - path_names:
            raise ToolRefused(f"its path has {sorted(unknown)}, which it does not describe")
        body = self._body(node, properties, required)
        schema: JsonObject = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        return Operation(method=method, path=path, parameters=parameters, body=body), schema

    def _body(
        self, node: JsonObject, properties: JsonObject, required: list[JsonValue]
    ) -> Body | None:
        if "requestBody" not in node:
            return None
        described = self._dereference(node["requestBody"])
        body_parts = body_of(described, self.references)
        if body_parts is None:
            return None
        body, properties["body"] = body_parts
        if described.get("required") is True:
            required.append("body")
        return body

    def _parameters(self, *nodes: JsonObject) -> list[JsonObject]:
        """The parameters of the path and of the operation, which take precedence."""
        parameters: dict[tuple[JsonValue, JsonValue], JsonObject] = {}
        for node in nodes:
            listed = node.get("parameters")
            for entry in listed if isinstance(listed, list) else ():
                parameter = self._dereference(entry)
                name, place = as_written(parameter.get("name")), parameter.get("in")
                if isinstance(name, str) and isinstance(place, str):
                    parameters[name, place] = {**parameter, "name": name}
        return list(parameters.values())

    def _parameter(self, node: JsonObject, path: str) -> tuple[Parameter | None, JsonObject]:
        name, place = str(node["name"]), str(node["in"])
        required = node.get("required") is True or place == "path"
        lower = name.lower()
        named = TOKEN.fullmatch(name) is not None
        if place not in _STYLES or (place in ("header", "cookie") and not named):
            if required:
                raise ToolRefused(f"it needs the {place[:32]} parameter {name[:64]!r}")
            return None, {}
        if place == "header" and (lower in _NOT_SENT or lower in self._wanted.headers):
            return None, {}
        if place == "query" and name in self._wanted.query:
            return None, {}
        schema, style = self._schema_and_style(node, place)
        # In Google's templates, `{+name}` means that the value may contain slashes.
        reserved = node.get("allowReserved") is True or f"{{+{name}}}" in path
        written = style.model_copy(update={"reserved": reserved})
        parameter = Parameter(
            name=name, place=cast("Place", place), style=written, required=required
        )
        return parameter, schema

    def _schema_and_style(self, node: JsonObject, place: str) -> tuple[JsonObject, Style]:
        content = node.get("content")
        schema, named = node.get("schema"), node.get("style")
        if isinstance(content, dict) and content:
            media, first = next(iter(content.items()))
            schema = first.get("schema") if isinstance(first, dict) else None
            # A value of any other type is a text, written like one without a media type.
            named = "json" if is_json(media) else _DEFAULT_STYLE[place]
        elif named not in _STYLES[place]:
            named = _DEFAULT_STYLE[place]
        explode = node.get("explode")
        exploded = explode if isinstance(explode, bool) else named in ("form", "cookie")
        inner: JsonObject = dict(schema) if isinstance(schema, dict) else {}
        description = node.get("description")
        if isinstance(description, str) and "description" not in inner:
            inner["description"] = description
        return inner, Style(name=str(named), explode=exploded)

    def _dereference(self, node: JsonValue) -> JsonObject:
        for _ in range(MAX_REFERENCES):
            reference = node.get("$ref") if isinstance(node, dict) else None
            if not isinstance(reference, str):
                break
            node, _inside = self.references.follow(reference)
        if not isinstance(node, dict) or "$ref" in node:
            raise ToolRefused("one of its references leads nowhere")
        return node


def _check_path(path: str) -> None:
    """Raises `ToolRefused` for a path that would lead outside the API's own server."""
    if not path.startswith("/"):
        raise ToolRefused("its path does not start with /")
    if any(ord(part) < 32 or part in "\\\x7f" for part in path):
        raise ToolRefused("its path has an invalid character")
    if "#" in path:
        raise ToolRefused("its path has a fragment (#…), which is never sent")
    segments = path.partition("?")[0].split("/")
    if any(unquote(part) in (".", "..") for part in segments):
        raise ToolRefused("its path has a . or .. segment")


def _describe_operation(node: JsonObject, method: str, path: str) -> str:
    parts = [node.get("summary"), node.get("description")]
    words = list(dict.fromkeys(part.strip() for part in parts if isinstance(part, str)))
    return "\n".join(word for word in words if word) or f"{method.upper()} {path}"
