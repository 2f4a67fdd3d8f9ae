"""Code that all routes share: the caller, the body within its limit, an answer as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from uuid import uuid4

import orjson
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from loopline.agents.tools.json_arguments import MAX_DEPTH, is_deeper_than
from loopline.bus.connection import OUTAGE
from loopline.runtime.gateway import api_keys
from loopline.runtime.gateway.errors import ApiError, invalid, too_large, unavailable
from loopline.runtime.gateway.service import Admitted, Service
from loopline.workers.json_bytes import json_bytes

T = TypeVar("T")

REQUEST_ID = "x-request-id"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UNWATCHED_SECONDS = 0.05
"""Delay before a task starts to watch whether a request's client is still connected; short requests
end earlier and need no task."""


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response. Errors have an `x-request-id`, as results do."""
    named = headers or {}
    if REQUEST_ID not in named:
        named = {REQUEST_ID: str(uuid4()), **named}
    return Response(json_bytes(body), status, headers=named, media_type="application/json")


def header(request: HTTPConnection, name: str) -> str | None:
    """Return a header by its lower-case name. `Request.headers` reads all headers each time."""
    wanted = name.encode()
    for key, value in request.scope["headers"]:
        if key == wanted:
            return value.decode("latin-1")
    return None


def run_headers(admitted: Admitted) -> dict[str, str]:
    return admitted.headers


def number_in(text: str, name: str, least: int, most: int) -> int:
    """Parse a query parameter as a number. Raises `ApiError`."""
    digits = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
    if not digits or not least <= int(text) <= most:
        raise invalid(
            f"{name} is a number from {least} to {most}, not {text[:20]!r}", name, "invalid_value"
        )
    return int(text)


def flag_in(request: HTTPConnection, name: str) -> bool:
    """Parse a query parameter as a boolean, false if it is missing. Clients write it in the style
    of their language: `true`, `True`, `1`. Raises `ApiError`."""
    text = request.query_params.get(name, "")
    if text.lower() in ("true", "1"):
        return True
    if text.lower() not in ("", "false", "0"):
        raise invalid(f"{name} is true or false, not {text[:20]!r}", name, "invalid_value")
    return False


def check_query(request: HTTPConnection, *names: str) -> None:
    """Raises `ApiError` for an unknown query parameter: a list without the filter or the page that
    a client wants would mislead it."""
    for name in request.query_params:
        if name not in names:
            raise invalid(
                f"Unknown parameter: '{name[:64]}'. This list takes: {', '.join(names)}",
                name[:64],
                "unknown_parameter",
            )


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`. If the client disconnects (detected after `UNWATCHED_SECONDS` at
    the earliest), cancel `work` and return None."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    over = has_left = False
    leaving: asyncio.Task[None] | None = None

    def on_leave(leaving: asyncio.Task[None]) -> None:
        nonlocal has_left
        if not over and not leaving.cancelled():
            has_left = True
            task.cancel()

    def watch() -> None:
        nonlocal leaving
        leaving = loop.create_task(_disconnected(request))
        leaving.add_done_callback(on_leave)

    timer = loop.call_later(UNWATCHED_SECONDS, watch)
    try:
        return await work
    except asyncio.CancelledError:
        if not has_left or task.uncancel() > 0:
            raise
        return None
    finally:
        over = True
        timer.cancel()
        if leaving is not None:
            leaving.cancel()


async def _disconnected(request: Request) -> None:
    """Return once the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def read_object(raw: bytes | bytearray) -> dict[str, Any]:
    """Parse a body as a JSON object. Raises `ApiError`."""
    try:
        value = orjson.loads(raw.removeprefix(_BYTE_ORDER_MARK))
    except orjson.JSONDecodeError as error:
        raise invalid(f"the body is not JSON: {error}", code="invalid_json") from error
    # Counting brackets first is enough for most bodies.
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and is_deeper_than(value, MAX_DEPTH):
        raise invalid(f"the body nests more than {MAX_DEPTH} levels deep", code="invalid_json")
    if not isinstance(value, dict):
        raise invalid("the body is not a JSON object", code="invalid_json")
    return value  # pyright: ignore[reportUnknownVariableType]


class Http:
    """Reads requests."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._authentication = api_keys.Authentication(service.client.bus)

    async def caller(self, request: HTTPConnection) -> api_keys.ApiKey:
        """Return the key of the caller. Raises `ApiError`."""
        try:
            return await self._authentication.caller(header(request, "authorization"))
        except OUTAGE as error:
            raise unavailable(f"Redis does not answer: {type(error).__name__}") from error

    async def body(self, request: Request) -> dict[str, Any]:
        """Read the body as a JSON object, within its limit. Raises `ApiError`."""
        limit = self._service.settings.gateway.max_body_bytes
        seconds = self._service.settings.gateway.body_seconds
        coding = (header(request, "content-encoding") or "identity").strip().lower()
        if coding not in ("identity", ""):
            raise ApiError(
                415,
                f"Content-Encoding {coding[:20]!r}: send the body as it is, without compression",
                code="unsupported_media_type",
            )
        declared = header(request, "content-length") or ""
        if declared.isdecimal() and int(declared) > limit:
            raise too_large(f"the body has {declared} bytes; the limit is {limit}")
        raw = bytearray()
        try:
            async with asyncio.timeout(seconds):
                more = True
                while more:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(400, "the client disconnected before its body was complete")
                    raw += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(raw) > limit:
                        raise too_large(f"the body has more than {limit} bytes")
        except TimeoutError as error:
            message = f"the body was not complete after {seconds:g} s"
            raise ApiError(408, message, code="request_timeout") from error
        return read_object(raw)
