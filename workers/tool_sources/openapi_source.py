"""An HTTP API as a source of tools, described by its OpenAPI document."""

from __future__ import annotations

import asyncio

import httpx
import structlog

from loopline.agents.records import JsonObject
from loopline.agents.tools import OutcomeUnknown, ToolContext, ToolFailed
from loopline.agents.tools.answers import cut_text
from loopline.agents.tools.effects import Effect
from loopline.bus import TRACEPARENT_HEADER
from loopline.workers.tool_sources import SourceUnavailable
from loopline.workers.tool_sources.answer_text import kind_of, text_of
from loopline.workers.tool_sources.bounded_http import BoundedAnswer, bounded_client, read_bounded
from loopline.workers.tool_sources.catalogue import Catalogue
from loopline.workers.tool_sources.content_coding import BadCoding
from loopline.workers.tool_sources.credentials import Credentials
from loopline.workers.tool_sources.openapi_document import read_document
from loopline.workers.tool_sources.openapi_operation import Operation
from loopline.workers.tool_sources.openapi_request import request_of
from loopline.workers.tool_sources.settings import ToolSourceSettings

log = structlog.get_logger("loopline.workers.tool_sources.openapi")

RETRY_SECONDS = 30.0
"""Longest pause before an unreadable document is read again."""
MAX_ERROR_CHARS = 2_000
SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE", "QUERY")
"""Methods without side effects, whose calls may be repeated."""


class OpenApiSource:
    """An HTTP API as a tool source. `run` reads the document; only calls contact the API itself."""

    def __init__(
        self, name: str, settings: ToolSourceSettings, document: str, credentials: Credentials
    ) -> None:
        self.name = name
        self.catalogue = Catalogue()
        self.trouble = "its document has not been read yet"
        self.first_try = asyncio.Event()
        self._settings = settings
        self._document = document
        self._credentials = credentials
        self._operations: dict[str, Operation] = {}
        self._base_url = ""
        self._http = bounded_client()

    async def run(self) -> None:
        """Read the document, with retries until that works; then wait to be cancelled."""
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
                self.first_try.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_SECONDS)
            await asyncio.Event().wait()

    async def _read(self) -> None:
        document = await read_document(self.name, self._document, self._settings, self._http)
        self._base_url = document.base_url
        self.catalogue = Catalogue(document.specs, document.own_names, document.left_out)
        self._operations = document.operations
        for why in document.left_out:
            log.warning("tool not offered", source=self.name, why=why)
        log.info("openapi document read", source=self.name, tools=len(document.specs))
        self.trouble = ""
        self.first_try.set()

    def declared_effect(self, name: str) -> Effect | None:
        """Effect by HTTP's own rule: https://www.rfc-editor.org/rfc/rfc9110#name-safe-methods."""
        operation = self._operations.get(name)
        return "none" if operation is not None and operation.method in SAFE_METHODS else None

    async def call(
        self, name: str, arguments: JsonObject, context: ToolContext | None
    ) -> JsonObject:
        """Execute an operation. Raises `ToolFailed` with the error of the API or the network,
        `OutcomeUnknown` if a request was sent and its answer was lost."""
        operation = self._operations.get(name)
        if operation is None:
            raise ToolFailed(f"the API {self.name} can't be called: {self.trouble}")
        key = context.key if context and operation.method not in SAFE_METHODS else ""
        request = request_of(
            self._http, self._base_url, operation, arguments, self._credentials, key
        )
        traceparent = context.traceparent if context else ""
        if traceparent and TRACEPARENT_HEADER not in request.headers:
            request.headers[TRACEPARENT_HEADER] = traceparent
        try:
            answer = await read_bounded(self._http, request, self._settings.max_response_bytes)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise ToolFailed(
                self._describe_error(f"the API {self.name} was not reached", error)
            ) from error
        except (httpx.HTTPError, BadCoding, ValueError) as error:
            raise OutcomeUnknown(
                self._describe_error(
                    f"the API {self.name} was called, but its answer can't be read", error
                )
            ) from error
        return self._read_answer(answer)

    def _describe_error(self, what: str, error: Exception) -> str:
        return self._credentials.hidden(f"{what}: {type(error).__name__}: {error}")[:300]

    def _read_answer(self, answer: BoundedAnswer) -> JsonObject:
        text = text_of(answer.headers, answer.body)
        if text is None:
            more = " or more" if answer.cut else ""
            size = f"{len(answer.body)} bytes{more}"
            text = f"[{kind_of(answer.headers)[:64]}, {size}: not shown]"
        else:
            text = self._credentials.hidden(text)
        if 300 <= answer.status < 400:
            raise ToolFailed(f"HTTP {answer.status}: a redirect, which is not followed")
        if answer.status >= 400:
            # The work may have been done despite an error of the server itself or of a proxy.
            error = OutcomeUnknown if answer.status >= 500 else ToolFailed
            raise error(f"HTTP {answer.status}: {text[:MAX_ERROR_CHARS]}")
        limit = self._settings.max_output_chars
        if answer.cut or len(text) > limit:
            # An answer that was not read to its end has at least this many characters.
            return cut_text(text, limit, len(text))
        return {"result": text or f"HTTP {answer.status}"}
