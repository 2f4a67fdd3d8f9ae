"""Converts the messages of MCP servers to the form that the protocol requires.

The `mcp` package validates every answer as a whole: one tool without a schema costs all tools of
its server, one unknown part of a result costs the result. Here each part is checked separately
before that: known variants are converted, unusable parts are omitted by name, and unrequested
messages are dropped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self

import anyio
import structlog
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import JsonValue

from loopline.agents.records import JsonObject
from loopline.agents.tools.answers import replace_surrogates
from loopline.workers.tool_sources import ToolRefused, check_encodable
from loopline.workers.tool_sources.catalogue import MAX_LEFT_OUT
from loopline.workers.tool_sources.mcp_results import plain_result

log = structlog.get_logger("loopline.workers.tool_sources.mcp")

HINTS = ("readOnlyHint", "idempotentHint")
"""Hints about a tool's calls that are used here."""
MAX_UNREQUESTED = 5_000
UNREQUESTED_SECONDS = 60.0
"""Period in seconds in which a server may send `MAX_UNREQUESTED` notifications and requests of its
own. A server that exceeds this is given up: reading its messages would occupy this worker."""
MAX_WAITING = 10_000
"""Maximum number of calls awaiting answers; if a server answers none, the oldest are forgotten."""

_BOM = b"\xef\xbb\xbf"


def messages_of(line: bytes) -> list[JSONRPCMessage]:
    """The messages in a line, or none: servers also write other things to their output."""
    for form in (line, line.removeprefix(_BOM).decode("utf-8", "replace").encode()):
        try:
            return [jsonrpc_message_adapter.validate_json(form, by_name=False)]
        except ValueError:
            continue
    try:
        payload: Any = json.loads(line.removeprefix(_BOM).decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return []
    # Protocol version 2025-03-26 had batches.
    messages = [_message(item) for item in (payload if isinstance(payload, list) else [payload])]
    return [item for item in messages if item is not None]


def _message(payload: Any) -> JSONRPCMessage | None:
    """Parse a message, converting an answer in the style of JSON-RPC 1 (both `error` and `result`,
    no version, an error that is a text)."""
    if not isinstance(payload, dict):
        return None
    whole: dict[str, Any] = dict(payload)
    if "method" not in whole and "id" in whole and ("result" in whole or "error" in whole):
        error = whole.get("error")
        if error is None:
            whole.pop("error", None)
        else:
            whole.pop("result", None)
            whole["error"] = _error(error)
        if "result" in whole and not isinstance(whole["result"], dict):
            whole["result"] = {"content": whole["result"]}
        whole["jsonrpc"] = "2.0"
    try:
        return jsonrpc_message_adapter.validate_python(whole, by_name=False)
    except ValueError:
        return None


def _error(error: Any) -> dict[str, Any]:
    details: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
    code, message = details.get("code"), details.get("message")
    return {
        "code": code if isinstance(code, int) else INTERNAL_ERROR,
        "message": message if isinstance(message, str) else json.dumps(error)[:1_000],
    }


class PlainTransport:
    """A transport for `mcp.Client` that wraps another one. If a server sends too many unrequested
    messages, `flooded` is called with the reason, and nothing more is read."""

    def __init__(
        self, inner: AbstractAsyncContextManager[Any], flooded: Callable[[str], None]
    ) -> None:
        self.left_out: list[str] = []
        """Why tools without a usable name are not listed."""
        self._inner = inner
        self._flooded = flooded
        self._asked: dict[Any, str] = {}
        self._unrequested = 0
        self._unrequested_since = 0.0

    async def __aenter__(self) -> TransportStreams:
        incoming, outgoing = await self._inner.__aenter__()
        return _Incoming(incoming, self), _Outgoing(outgoing, self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, traceback)

    def sent(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, JSONRPCRequest):
            while len(self._asked) >= MAX_WAITING:
                del self._asked[next(iter(self._asked))]
            self._asked[str(message.id)] = message.method

    def taken(self, item: Any) -> bool:
        """Fix a message; returns whether the session should get it."""
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCResponse):
            method = self._asked.pop(str(message.id), "")
            message.result = self._fix_result(method, message.result)
        if isinstance(message, JSONRPCNotification | JSONRPCRequest):
            self._count()
        # Notifications have no effect here, and the session would start a task for each; ending
        # thousands of them takes minutes.
        return not isinstance(message, JSONRPCNotification)

    def _count(self) -> None:
        """Count an unrequested message. Raises `anyio.EndOfStream` after too many in one period."""
        now = time.monotonic()
        if now - self._unrequested_since > UNREQUESTED_SECONDS:
            self._unrequested, self._unrequested_since = 0, now
        self._unrequested += 1
        if self._unrequested > MAX_UNREQUESTED:
            self._flooded(
                f"it sent more than {MAX_UNREQUESTED} unrequested messages in "
                f"{UNREQUESTED_SECONDS:g} s"
            )
            raise anyio.EndOfStream

    def _fix_result(self, method: str, result: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                return _greeting(result)
            case "tools/list":
                return self._listing(result)
            case "tools/call":
                return plain_result(result)
            case _:
                return result

    def _listing(self, result: dict[str, Any]) -> dict[str, Any]:
        tools: list[JsonValue] = []
        listed = result.get("tools")
        for tool in listed if isinstance(listed, list) else []:
            try:
                tools.append(_tool(tool))
            except ToolRefused as error:
                if len(self.left_out) < MAX_LEFT_OUT:
                    self.left_out.append(replace_surrogates(str(error)))
        cursor = result.get("nextCursor")
        if isinstance(cursor, int) and not isinstance(cursor, bool):
            cursor = str(cursor)  # the protocol only has texts
        rest = {key: value for key, value in result.items() if key not in ("tools", "nextCursor")}
        # An empty cursor ends a list; requesting it would return the first page again.
        more = {"nextCursor": cursor} if isinstance(cursor, str) and cursor else {}
        return {**rest, "tools": tools, **more}


def _greeting(result: dict[str, Any]) -> dict[str, Any]:
    info, can = result.get("serverInfo"), result.get("capabilities")
    named = {"name": "unnamed", "version": "0", **(info if isinstance(info, dict) else {})}
    return {**result, "serverInfo": named, "capabilities": can if isinstance(can, dict) else {}}


def _tool(tool: Any) -> JsonObject:
    """The fields of a tool that are used here. Raises `ToolRefused`."""
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
        raise ToolRefused(f"{json.dumps(tool)[:100]}: it has no name")
    name = tool["name"]
    schema = tool.get("inputSchema")
    if schema is None or schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise ToolRefused(f"{name[:100]}: its schema is not an object")
    words = [tool.get(key) for key in ("description", "title")]
    description = next((word for word in words if isinstance(word, str) and word), name)
    plain: JsonObject = {"name": name, "description": replace_surrogates(description)}
    hints = tool.get("annotations")
    if isinstance(hints, dict):
        plain["annotations"] = {
            key: hints[key] for key in HINTS if isinstance(hints.get(key), bool)
        }
    plain["inputSchema"] = _root(name, schema)
    try:
        check_encodable(plain)  # the session would refuse the whole list
    except ToolRefused as error:
        raise ToolRefused(f"{name[:100]}: {error}") from error
    return plain


def _root(name: str, schema: dict[str, Any]) -> JsonObject:
    """A schema whose type is stated to be an object, as the protocol requires."""
    kinds = schema.get("type")
    named = [str(kind).lower() for kind in (kinds if isinstance(kinds, list) else [kinds])]
    if kinds and "object" not in named:
        raise ToolRefused(f"{name[:100]}: its arguments are not an object")
    result: dict[str, Any] = {**schema, "type": "object"}
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, dict):
        result["properties"] = {
            key: field if isinstance(field, dict | bool) else {}
            for key, field in properties.items()
        }
    else:
        result.pop("properties", None)
    if isinstance(required, list):
        result["required"] = [item for item in required if isinstance(item, str)]
    else:
        result.pop("required", None)
    if not isinstance(schema.get("$schema", ""), str):
        del result["$schema"]
    return result


class _Stream:
    """One direction of a session's messages."""

    def __init__(self, inner: Any, transport: PlainTransport) -> None:
        self._inner = inner
        self._transport = transport

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        await self.aclose()
        return None


class _Incoming(_Stream):
    """A stream of messages that are fixed as they are received."""

    _over = False

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while not self._over:
            item = await self._inner.receive()
            try:
                if self._transport.taken(item):
                    return item
            except anyio.EndOfStream:
                self._over = True
        raise anyio.EndOfStream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Outgoing(_Stream):
    """A stream of messages that are recorded as they are sent."""

    async def send(self, item: SessionMessage, /) -> None:
        self._transport.sent(item)
        await self._inner.send(item)
