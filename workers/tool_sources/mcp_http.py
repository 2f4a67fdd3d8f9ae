"""The HTTP client of an MCP connection: limits the size of answers of any kind, and makes a call
that the network or the server rejected fail separately, with the reason.

Without it, the transport above would end all calls of a connection when one request fails, and
report only that it was rejected.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
from mcp_types import INTERNAL_ERROR

from loopline.workers.tool_sources.content_coding import BadCoding, Unpacker

CONNECT_SECONDS = 30.0
NOT_CARRIED_OUT = -32_990
"""Error code of a call that never reached a tool: no connection, or a session that the server no
longer knows. It is safe to call again."""
MAX_REFUSAL_BYTES = 4_096

_SESSION = "mcp-session-id"
_LOST_SESSION = re.compile(r"session|initiali[sz]ed", re.IGNORECASE)
_METHODS = ("initialize", "tools/list", "tools/call")
"""Requests whose refusals are told in the server's words."""
_OF_THE_CALL = (-32_601, -32_602)
"""Error codes that concern the request, not the session."""


def bounded_client(
    headers: Mapping[str, str], *, max_message_bytes: int, read_seconds: float
) -> httpx2.AsyncClient:
    """A client that reads at most `max_message_bytes` of an answer. Event streams last for hours;
    instead they have a limit per event, which the transport above enforces."""
    return httpx2.AsyncClient(
        transport=_BoundedTransport(max_message_bytes),
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=read_seconds),
        trust_env=False,
    )


class _BoundedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, max_bytes: int) -> None:
        self._inner = httpx2.AsyncHTTPTransport(verify=httpx2.create_ssl_context(), trust_env=False)
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        asked_id, method = _asked(request)
        request_id = asked_id if method in _METHODS else None
        try:
            answer = await self._inner.handle_async_request(request)
            response = self._bound_response(answer)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            if request_id is None:
                raise
            return _error(request_id, NOT_CARRIED_OUT, f"no connection: {error}")
        except httpx2.TransportError as error:
            if request_id is None:
                raise
            what = f"the connection broke ({type(error).__name__}); the call may have taken effect"
            return _error(request_id, INTERNAL_ERROR, what)
        if response.status_code >= 400:
            if request_id is None:
                return response
            return await _refusal(request_id, request, response)
        length = answer.headers.get("content-length", "")
        if asked_id is None or not length.isdecimal() or int(length) > MAX_REFUSAL_BYTES:
            return response
        # Some servers refuse with status 200, and an error that names no request.
        try:
            text = (await response.aread()).decode("utf-8", "replace")
        except httpx2.StreamError as error:
            what = f"its answer can't be read ({error}); the call may have taken effect"
            return _error(asked_id, INTERNAL_ERROR, what)
        return _unaddressed_error(asked_id, request, text) or response

    def _bound_response(self, response: httpx2.Response) -> httpx2.Response:
        stream = response.stream
        if not isinstance(stream, httpx2.AsyncByteStream):
            return response
        kind = response.headers.get("content-type", "").lower()
        endless = kind.startswith("text/event-stream")
        coding = response.headers.get("content-encoding", "")
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name.lower() not in ("content-encoding", "content-length")
        ]
        return httpx2.Response(
            response.status_code,
            headers=headers,
            stream=_BoundedStream(stream, coding, None if endless else self._max_bytes),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


def _asked(request: httpx2.Request) -> tuple[Any, Any]:
    """The id and the method of a JSON-RPC request; None for anything else."""
    if request.method != "POST":
        return None, None
    try:
        message = json.loads(request.content)
    except (httpx2.StreamError, ValueError):
        return None, None
    return (message.get("id"), message.get("method")) if isinstance(message, dict) else (None, None)


def _error(request_id: Any, code: int, message: str) -> httpx2.Response:
    error = {"code": code, "message": message[:500]}
    return httpx2.Response(200, json={"jsonrpc": "2.0", "id": request_id, "error": error})


async def _refusal(
    request_id: Any, request: httpx2.Request, response: httpx2.Response
) -> httpx2.Response:
    """The server's reason for rejecting a request: its session is gone, or the server's message."""
    body = bytearray()
    try:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MAX_REFUSAL_BYTES:
                break
    except httpx2.HTTPError:
        pass  # report what was read so far
    finally:
        await response.aclose()
    text = body[:MAX_REFUSAL_BYTES].decode("utf-8", "replace").strip()
    return _error_of(request_id, request, response.status_code, text)


def _unaddressed_error(
    request_id: Any, request: httpx2.Request, text: str
) -> httpx2.Response | None:
    """The answer to this request, if the text is an error without an id."""
    if _json_error(text) is None or json.loads(text).get("id") is not None:
        return None
    return _error_of(request_id, request, 200, text)


def _error_of(request_id: Any, request: httpx2.Request, status: int, text: str) -> httpx2.Response:
    json_error = _json_error(text)
    words = json_error["message"] if json_error is not None else text
    gone = status in (404, 410) or (status in (200, 400, 409, 422) and _LOST_SESSION.search(words))
    if gone and _SESSION in request.headers and (json_error or {}).get("code") not in _OF_THE_CALL:
        return _error(
            request_id, NOT_CARRIED_OUT, f"HTTP {status}: the session is gone ({words[:100]})"
        )
    code = json_error["code"] if json_error is not None else INTERNAL_ERROR
    return _error(request_id, code, words if json_error is not None else f"HTTP {status}: {words}")


def _json_error(text: str) -> dict[str, Any] | None:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return None
    error = whole.get("error") if isinstance(whole, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    code = error.get("code")
    return {"code": code if isinstance(code, int) else INTERNAL_ERROR, "message": error["message"]}


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, coding: str, max_bytes: int | None) -> None:
        self._inner = inner
        self._coding = coding
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        try:
            unpacker = Unpacker(self._coding)
            async for chunk in self._inner:
                for piece in unpacker.pieces(chunk):
                    read += len(piece)
                    if self._max_bytes is not None and read > self._max_bytes:
                        raise httpx2.StreamError(
                            f"the answer has more than {self._max_bytes} bytes"
                        )
                    yield piece
            unpacker.end()
        except BadCoding as error:
            raise httpx2.StreamError(str(error)) from error
        except httpx2.TransportError as error:
            # An error type that affects only this answer.
            raise httpx2.StreamError(f"the connection broke: {type(error).__name__}") from error

    async def aclose(self) -> None:
        await self._inner.aclose()
