"""One MCP server as a source of tools: it is joined, watched, and joined again when it is lost.

The server may only answer calls. Its own requests to the client (a completion, a question to the
user, a list of folders) are refused, and changes to its tools only take effect when it is joined
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal

import mcp_types as types
import structlog
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from pydantic import TypeAdapter, ValidationError

from loopline.agents.records import JsonObject
from loopline.agents.tools import OutcomeUnknown, ToolContext, ToolFailed
from loopline.agents.tools.answers import as_answer
from loopline.agents.tools.effects import Effect
from loopline.bus import TRACEPARENT_HEADER
from loopline.workers.tool_sources.catalogue import Catalogue, ListedTool, catalogue_of
from loopline.workers.tool_sources.credentials import Credentials
from loopline.workers.tool_sources.mcp_dialects import PlainTransport
from loopline.workers.tool_sources.mcp_http import NOT_CARRIED_OUT, bounded_client
from loopline.workers.tool_sources.mcp_process import ProcessTransport
from loopline.workers.tool_sources.mcp_results import error_reason, text_of
from loopline.workers.tool_sources.settings import McpSettings, ToolSourceSettings

log = structlog.get_logger("loopline.workers.tool_sources.mcp")

MAX_PAGES = 100
MAX_LISTED = 2_000
"""Maximum number of tools that are read from a server's list."""
MAX_RESTART_SECONDS = 30.0
STEADY_SECONDS = 30.0
"""Connection time after which the next pause is the shortest one again."""
ABSENCE_SECONDS = 5.0
"""Longest wait of a call for a server that is being joined again."""
LEAVE_SECONDS = 1.0
"""Time that a lost connection stays open for the calls that still use it."""
MAX_ERROR_CHARS = 300
IDEMPOTENCY_KEY = "loopline/idempotency-key"
"""Key in `_meta` of a call. Its value is the same in every repetition of the call."""
_LOST_SESSION = re.compile(
    r"\b(?:invalid|unknown|no valid) session|\bsession (?:not found|terminated|expired)",
    re.IGNORECASE,
)
"""Wordings of servers for an unknown session. The text may come from the tool itself, so the call
is not repeated; joining again does no harm."""

_reply: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


class _NotCarriedOut(Exception):
    """A call that did not reach a tool, so that it may be repeated."""


class McpSource:
    """An MCP server as a tool source. `call` works while `run` maintains the connection."""

    def __init__(
        self, name: str, settings: ToolSourceSettings, mcp: McpSettings, credentials: Credentials
    ) -> None:
        self.name = name
        self.catalogue = Catalogue()
        self.trouble = "it has not been joined yet"
        """Why there is no connection now; empty while there is one."""
        self.first_try = asyncio.Event()
        """Set after the first attempt to join, successful or not."""
        self._settings = settings
        self._mcp = mcp
        self._credentials = credentials
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._lost = asyncio.Event()
        self._in_flight = 0
        self._effects: dict[str, Effect] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._mode: Literal["auto", "legacy"] = "auto"
        self._error_line = ""
        """The last line on the standard error of a server that has exited."""

    async def run(self) -> None:
        """Serve the source until cancelled."""
        pause = self._settings.restart_seconds
        while True:
            began = time.monotonic()
            try:
                await self._serve()
            except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again
                quotation = f"; it said: {self._error_line}" if self._error_line else ""
                why = error_reason(error) + quotation
                self.trouble = self._credentials.hidden(why)
            log.warning("mcp server lost", source=self.name, why=self.trouble)
            if not self._lost.is_set() and self._mcp.url is None:
                # Joining failed. Some servers exit at a request before the greeting, with which the
                # newest protocol starts.
                self._mode = "legacy" if self._mode == "auto" else "auto"
            self.first_try.set()
            if time.monotonic() - began > STEADY_SECONDS:
                pause = self._settings.restart_seconds
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, MAX_RESTART_SECONDS)

    async def _serve(self) -> None:
        """Serve one connection, from joining to its end."""
        self._error_line = ""
        self._lost.clear()
        limit = asyncio.timeout(self._settings.connect_seconds)
        try:
            async with limit, self._open_client() as (client, transport):
                listed = await _list_tools(client, self._settings.max_response_bytes)
                limit.reschedule(None)
                self._join(client, listed, transport.left_out)
                await self._lost.wait()
                # Calls sent earlier may still be answered: closing now would leave open whether
                # they took effect.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LEAVE_SECONDS):
                        await self._idle.wait()
        except TimeoutError:
            if not limit.expired():
                raise
            self.trouble = f"it took longer than {self._settings.connect_seconds:g} s to join"
        finally:
            self._client = None
            self._connected.clear()

    def _join(self, client: Client, listed: list[ListedTool], left_out: list[str]) -> None:
        before = self.catalogue
        new_catalogue = catalogue_of(self.name, listed, self._settings.allow)
        self._effects = {tool.name: tool.effect for tool in listed if tool.effect is not None}
        self.catalogue = replace(new_catalogue, left_out=(*left_out, *new_catalogue.left_out))
        if before.specs and before.specs != self.catalogue.specs:
            log.warning("mcp server offers other tools than before", source=self.name)
        for why in self.catalogue.left_out:
            log.warning("tool not offered", source=self.name, why=self._credentials.hidden(why))
        log.info("mcp server joined", source=self.name, tools=len(self.catalogue.specs))
        self._client, self.trouble = client, ""
        self._connected.set()
        self.first_try.set()

    @asynccontextmanager
    async def _open_client(self) -> AsyncGenerator[tuple[Client, PlainTransport]]:
        limit = self._settings.max_response_bytes
        if self._mcp.url is None:
            process = ProcessTransport(
                self.name,
                self._mcp.command,
                environment=self._credentials.environment,
                cwd=self._mcp.cwd,
                max_message_bytes=limit,
            )
            transport = PlainTransport(process, self._lose)
            try:
                async with Client(transport, cache=None, mode=self._mode) as client:
                    watching = asyncio.create_task(self._watch_transport(process))
                    try:
                        yield client, transport
                    finally:
                        watching.cancel()
            finally:
                self._error_line = process.error_output.rpartition("\n")[2][:MAX_ERROR_CHARS]
            return
        async with bounded_client(
            self._credentials.headers,
            max_message_bytes=limit,
            read_seconds=max(self._settings.timeout_seconds, 300.0),
        ) as http:
            stream = streamable_http_client(
                self._mcp.url, http_client=http, max_sse_event_size=limit
            )
            transport = PlainTransport(stream, self._lose)
            async with Client(transport, cache=None) as client:
                yield client, transport

    async def _watch_transport(self, transport: ProcessTransport) -> None:
        await transport.ended.wait()
        self._lose(transport.why)

    def _lose(self, why: str) -> None:
        """Start no further calls until the server is joined again. Only the first reason is
        reported."""
        if self._lost.is_set():
            return
        self.trouble = self._credentials.hidden(why)
        self._client = None
        self._connected.clear()
        self._lost.set()

    def declared_effect(self, name: str) -> Effect | None:
        """Effect according to the protocol's hints, which a server may omit."""
        return self._effects.get(name)

    async def call(
        self, name: str, arguments: JsonObject, context: ToolContext | None
    ) -> JsonObject:
        """Call a tool by its own name. Raises `ToolFailed` with the server's message, or the reason
        for its silence; `OutcomeUnknown` if the connection was lost during the call."""
        try:
            result = await self._request_call(name, arguments, context)
        except _NotCarriedOut:
            try:
                result = await self._request_call(name, arguments, context)
            except _NotCarriedOut as error:
                raise ToolFailed(f"the MCP server {self.name} can't be called: {error}") from error
        if isinstance(result, types.InputRequiredResult):
            raise ToolFailed("the server asked for more input during the call, which is refused")
        text = self._credentials.hidden(text_of(result))
        return as_answer(name, text, self._settings.max_output_chars)

    async def _request_call(
        self, name: str, arguments: JsonObject, context: ToolContext | None
    ) -> types.CallToolResult | types.InputRequiredResult:
        client = await self._require_client()
        meta = {} if context is None else {IDEMPOTENCY_KEY: context.key}
        if context is not None and context.traceparent:
            meta[TRACEPARENT_HEADER] = context.traceparent
        params = types.CallToolRequestParams.model_validate(
            {"name": name, "arguments": dict(arguments), "_meta": meta or None}
        )
        self._in_flight += 1
        self._idle.clear()
        try:
            # Not `Client.call_tool`: it validates by the server's own schema, whose patterns can
            # keep a validator busy for ever.
            return await client.session.send_request(types.CallToolRequest(params=params), _reply)
        except MCPError as error:
            if error.code == NOT_CARRIED_OUT:
                self._lose_client(client, error.message)
                raise _NotCarriedOut(self._credentials.hidden(error.message)) from error
            raise self._failure(client, error) from error
        except ValidationError as error:
            # Only the position: the message quotes the server's answer, of any length.
            place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
            raise ToolFailed(
                f"the MCP server {self.name} answered in a form that can't be read ({place[:100]})"
            ) from error
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def _require_client(self) -> Client:
        try:
            async with asyncio.timeout(ABSENCE_SECONDS):
                await self._connected.wait()
        except TimeoutError:
            raise ToolFailed(
                f"the MCP server {self.name} is not connected: {self.trouble}"
            ) from None
        if self._client is None:
            raise ToolFailed(f"the MCP server {self.name} was lost a moment ago: {self.trouble}")
        return self._client

    def _lose_client(self, client: Client, message: str) -> None:
        """Drop the client if it is still the one in use: several calls may notice the loss."""
        if self._client is client:
            self._lose(f"the connection can no longer be used ({message})"[:200])

    def _failure(self, client: Client, error: MCPError) -> ToolFailed:
        closed = error.code == types.CONNECTION_CLOSED
        # Each of them shows that the server has changed since it was joined.
        if closed or error.code == types.HEADER_MISMATCH or _LOST_SESSION.search(error.message):
            self._lose_client(client, error.message)
        if closed:
            return OutcomeUnknown(
                f"the MCP server {self.name} was lost during the call, which may have taken "
                f"effect: {self.trouble or self._credentials.hidden(error.message)}"
            )
        return ToolFailed(f"the MCP server {self.name} answered: {error.message}")


async def _list_tools(client: Client, max_bytes: int) -> list[ListedTool]:
    """List the tools of all pages, or as many as the limits for an endless list allow."""
    listed: list[ListedTool] = []
    read = 0
    cursor: str | None = None
    cursors: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        listed += [
            ListedTool(
                tool.name,
                tool.description or tool.name,
                tool.input_schema,
                effect=_effect_of(tool.annotations),
            )
            for tool in page.tools
        ]
        cursor = page.next_cursor
        read += len(page.model_dump_json())
        # A server that ignores cursors returns the first page and its cursor again.
        if not cursor or cursor in cursors or len(listed) >= MAX_LISTED or read > max_bytes:
            break
        cursors.add(cursor)
    return listed[:MAX_LISTED]


def _effect_of(hints: types.ToolAnnotations | None) -> Effect | None:
    if hints is not None and hints.read_only_hint:
        return "none"
    return "keyed" if hints is not None and hints.idempotent_hint else None
