"""An HTTP API as a source of tools, by its OpenAPI document."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import httpx
import structlog
from pydantic import JsonValue

from agents.records import JsonObject
from agents.tools import ToolFailed
from agents.tools.answers import cut_text
from workers.tool_sources.bounded_http import BoundedAnswer, bounded_client, read_bounded
from workers.tool_sources.catalogue import Catalogue, catalogue_of
from workers.tool_sources.credentials import Credentials
from workers.tool_sources.errors import SourceUnavailable
from workers.tool_sources.openapi_document import base_url_of, read_document
from workers.tool_sources.openapi_operations import Operation, Parameter, operations_of
from workers.tool_sources.settings import ToolSourceSettings

log = structlog.get_logger("workers.tool_sources.openapi")

RETRY_SECONDS = 30.0
"""Longest pause before a document is read again that could not be."""
MAX_ERROR_CHARS = 2_000

_TEXT_KINDS = ("text/", "application/json", "application/xml", "application/yaml")


class OpenApiSource:
    """See the module. `run` reads the document; the API itself is asked when a tool is called."""

    def __init__(
        self, name: str, settings: ToolSourceSettings, document: str, credentials: Credentials
    ) -> None:
        self.name = name
        self.catalogue = Catalogue()
        self.trouble = "its document was not read yet"
        self.tried = asyncio.Event()
        self._settings = settings
        self._document = document
        self._credentials = credentials
        self._operations: dict[str, Operation] = {}
        self._base_url = ""
        self._http = bounded_client()

    async def run(self) -> None:
        """Read the document, again and again until that works; then wait to be cancelled."""
        pause = self._settings.restart_seconds
        async with self._http:
            while True:
                try:
                    async with asyncio.timeout(self._settings.connect_seconds):
                        await self._read()
                    break
                except TimeoutError:
                    self.trouble = f"reading it took over {self._settings.connect_seconds:g} s"
                except SourceUnavailable as error:
                    self.trouble = self._credentials.hidden(str(error))
                except Exception as error:  # noqa: BLE001 - a document may hold anything
                    what = f"{type(error).__name__}: {error}"[:300]
                    self.trouble = self._credentials.hidden(f"its document can't be used: {what}")
                log.warning("openapi document not read", source=self.name, why=self.trouble)
                self.tried.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_SECONDS)
            await asyncio.Event().wait()

    async def _read(self) -> None:
        document = await read_document(self._document, self._http)
        self._base_url = base_url_of(document, self._settings)
        found = await asyncio.to_thread(operations_of, document, self._base_url)
        catalogue = await asyncio.to_thread(
            catalogue_of, self.name, found.listed, self._settings.allow
        )
        left_out = (*found.left_out, *catalogue.left_out)
        self.catalogue = replace(catalogue, left_out=left_out)
        self._operations = found.by_name
        for why in left_out:
            log.warning("tool not offered", source=self.name, why=why)
        log.info("openapi document read", source=self.name, tools=len(catalogue.specs))
        self.trouble = ""
        self.tried.set()

    async def call(self, name: str, arguments: JsonObject) -> JsonObject:
        """Carry an operation out. Raises `ToolFailed` with what the API or the network said."""
        operation = self._operations.get(name)
        if operation is None:
            raise ToolFailed(f"the API {self.name} can't be called: {self.trouble}")
        try:
            request = self._request(operation, arguments)
            answer = await read_bounded(self._http, request, self._settings.max_response_bytes)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            told = self._credentials.hidden(f"{type(error).__name__}: {error}")
            raise ToolFailed(f"the API {self.name} was not reached: {told}"[:300]) from error
        return self._read_answer(answer)

    def _request(self, operation: Operation, arguments: JsonObject) -> httpx.Request:
        path, query, headers = operation.path, list[tuple[str, str]](), dict[str, str]()
        for argument, parameter in operation.parameters.items():
            if argument not in arguments:
                continue
            value = arguments[argument]
            match parameter.place:
                case "path":
                    path = path.replace(f"{{{parameter.name}}}", _path_part(parameter, value))
                case "query":
                    query += _query_pairs(parameter, value)
                case "header":
                    headers[parameter.name] = _joined(parameter, value)
        content, form = None, None
        body = arguments.get(operation.body_argument) if operation.body_argument else None
        if body is not None and operation.body_kind == "json":
            content = json.dumps(body).encode()
            headers["Content-Type"] = operation.body_type
        elif isinstance(body, dict):
            form = {key: _plain(value) for key, value in body.items()}
        return self._http.build_request(
            operation.method,
            self._base_url.rstrip("/") + path,
            params=[*query, *self._credentials.query.items()] or None,
            # What the profile says wins over what a model writes.
            headers={**headers, **self._credentials.headers},
            content=content,
            data=form,
        )

    def _read_answer(self, answer: BoundedAnswer) -> JsonObject:
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.body and kind and not (kind.startswith(_TEXT_KINDS) or kind.endswith("+json")):
            more = " or more" if answer.cut else ""
            text = f"[{kind[:64]}, {len(answer.body)} bytes{more}: not shown]"
        else:
            text = self._credentials.hidden(answer.text)
        if 300 <= answer.status < 400:
            raise ToolFailed(f"HTTP {answer.status}: a redirect, which is not followed")
        if answer.status >= 400:
            raise ToolFailed(f"HTTP {answer.status}: {text[:MAX_ERROR_CHARS]}")
        limit = self._settings.max_output_chars
        if answer.cut or len(text) > limit:
            # An answer that was not read to its end has at least these many characters.
            return cut_text(text, limit, len(text))
        return {"result": text or f"HTTP {answer.status}"}


def _path_part(parameter: Parameter, value: JsonValue) -> str:
    text = _joined(parameter, value)
    if text in ("", ".", ".."):
        raise ToolFailed(f"{parameter.name}: {text!r} can't be part of a path")
    return quote(text, safe="")


def _query_pairs(parameter: Parameter, value: JsonValue) -> Iterator[tuple[str, str]]:
    """By OpenAPI's styles: https://spec.openapis.org/oas/v3.1.0#style-values"""
    match value:
        case None:
            return
        case dict() if parameter.style == "deepObject":
            for key, inner in value.items():
                yield f"{parameter.name}[{key}]", _plain(inner)
        case dict() if parameter.style == "form" and parameter.explode:
            for key, inner in value.items():
                yield key, _plain(inner)
        case list() if parameter.style == "form" and parameter.explode:
            for inner in value:
                yield parameter.name, _plain(inner)
        case _:
            yield parameter.name, _joined(parameter, value)


def _joined(parameter: Parameter, value: JsonValue) -> str:
    """One text, as `simple` and unexploded `form` write it; JSON for a parameter that is JSON."""
    if parameter.style == "json":
        return json.dumps(value)
    between = {"spaceDelimited": " ", "pipeDelimited": "|"}.get(parameter.style, ",")
    match value:
        case list():
            return between.join(_plain(inner) for inner in value)
        case dict() if parameter.explode:
            return between.join(f"{key}={_plain(inner)}" for key, inner in value.items())
        case dict():
            return between.join(f"{key}{between}{_plain(inner)}" for key, inner in value.items())
        case _:
            return _plain(value)


def _plain(value: JsonValue) -> str:
    match value:
        case str():
            return value
        case None:
            return ""
        case _:
            return json.dumps(value)
