"""`/v1/responses` over a WebSocket, as in OpenAI's API: a connection requests several responses.

    {"type": "response.create", …}     the body of a POST without `stream`; `stream_id`: a lane
    {"type": "response.created", …}    the events of the stream, in order, with their lane's name

Requests of one lane are answered in order, different lanes in parallel. A response that is not
stored can only be continued on its own connection. A client that disconnects cancels its responses
in progress. If the gateway stops, a response continues and can be read at its URL.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
import structlog
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from loopline.agents.errors import AgentError
from loopline.bus import BusError
from loopline.bus.connection import OUTAGE
from loopline.bus.tasks import end
from loopline.runtime.errors import UserError
from loopline.runtime.gateway.errors import (
    ApiError,
    defect,
    invalid,
    overloaded,
    translated,
    unavailable,
)
from loopline.runtime.gateway.http import Http, json_response, read_object
from loopline.runtime.gateway.responses_api import ResponsesApi
from loopline.runtime.gateway.responses_body import response_id
from loopline.runtime.gateway.service import Service

CREATE, STEER = "response.create", "response.steer"
MAX_WAITING = 128
"""Maximum number of unanswered requests of one connection."""
MAX_UNSTORED = 64
"""Number of a connection's newest unstored responses that it can continue."""
SERVICE_RESTART = 1012
"""Code with which a stopping gateway closes a connection."""
log = structlog.get_logger("loopline.runtime.gateway")
_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_OF_ENVELOPE = ("type", "stream_id", "stream", "background", "generate")

Event = dict[str, Any]


class ResponsesSocket:
    """Handler of connections."""

    def __init__(self, service: Service, http: Http, api: ResponsesApi) -> None:
        self._service = service
        self._http = http
        self._api = api

    def routes(self) -> list[WebSocketRoute]:
        return [
            WebSocketRoute(f"{prefix}/responses", self.serve)
            for prefix in ("/v1", "/sessions/{session}/v1")
        ]

    async def serve(self, socket: WebSocket) -> None:
        """Serve one connection from its handshake to its end."""
        try:
            await self._http.caller(socket)
        except ApiError as error:
            refusal = json_response(error.body, error.status, error.headers)
            await socket.send_denial_response(refusal)
            return
        await socket.accept()
        await _Connection(socket, self._service, self._http, self._api).run()


class _Connection:
    def __init__(self, socket: WebSocket, service: Service, http: Http, api: ResponsesApi) -> None:
        self._socket = socket
        self._service = service
        self._http = http
        self._api = api
        self._lanes: dict[str | None, deque[Event]] = {}
        """Requests by lane; the first request of each lane is being answered."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._unstored: deque[str] = deque(maxlen=MAX_UNSTORED)
        self._ends_with_gateway = False

    async def run(self) -> None:
        try:
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    self._ends_with_gateway = message.get("code") == SERVICE_RESTART
                    return
                await self._take(message.get("text"))
        except WebSocketDisconnect:
            return
        finally:
            await end(self._tasks)

    async def _take(self, text: str | None) -> None:
        """Handle one message. A wrong message becomes an error event, and the connection
        continues."""
        lane: str | None = None
        try:
            if text is None:
                raise invalid("a message must be text with a JSON object", code="invalid_json")
            request = read_object(text.encode())
            lane = _lane_of(request)
            kind = request.get("type")
            if kind == CREATE:
                self._queue(lane, request)
            elif kind == STEER:
                await self._send(_not_steered(request), lane)
            else:
                raise invalid(
                    f"type: {str(kind)[:64]!r} is not an event that clients send; {CREATE!r} is",
                    "type",
                    "unsupported_event",
                )
        except ApiError as error:
            await self._send(_error_event(error), lane)

    def _queue(self, lane: str | None, request: Event) -> None:
        """Queue a request. Raises `ApiError` if too many requests wait."""
        if sum(map(len, self._lanes.values())) >= MAX_WAITING:
            raise overloaded(f"{MAX_WAITING} requests of this connection wait for their answers")
        if (waiting := self._lanes.get(lane)) is not None:
            waiting.append(request)
            return
        self._lanes[lane] = deque([request])
        task = asyncio.create_task(self._serve_lane(lane), name=f"responses lane {lane}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_lane(self, lane: str | None) -> None:
        waiting = self._lanes[lane]
        try:
            while waiting:
                await self._answer(lane, waiting[0])
                waiting.popleft()
        except WebSocketDisconnect:
            pass  # the reader notices it, too
        finally:
            del self._lanes[lane]

    async def _answer(self, lane: str | None, request: Event) -> None:
        """Send all events of one response."""
        try:
            await self._respond(lane, request)
        except ApiError as error:
            await self._send(_error_event(error), lane)
        except OUTAGE as error:
            failure = unavailable(f"Redis does not answer: {type(error).__name__}")
            await self._send(_error_event(failure), lane)
        except (AgentError, BusError, UserError) as error:
            failure = translated(error)
            if failure is None:
                raise
            await self._send(_error_event(failure), lane)
        except WebSocketDisconnect:
            raise
        except Exception:
            # The requests that wait in this lane still get their answers.
            log.exception("a response failed", lane=lane)
            await self._send(_error_event(defect()), lane)

    async def _respond(self, lane: str | None, request: Event) -> None:
        # The key may have been revoked since the handshake.
        caller = await self._http.caller(self._socket)
        response = await self._api.admit(
            self._socket, caller, _body_of(request), unstored=frozenset(self._unstored)
        )
        admitted, ended = response.admitted, False
        # Whether the run continues after a disconnect depends on the reason: see `finally`.
        outliving = replace(admitted, outlives_client=True)
        try:
            async with aclosing(self._api.events(outliving, response.view)) as events:
                async for event in events:
                    await self._send(event, lane)
            ended = True
            if not response.view.record.store:
                self._unstored.append(response_id(admitted.run.id))
        finally:
            if not ended and not self._ends_with_gateway:
                await self._service.abandon(admitted)

    async def _send(self, event: Event, lane: str | None) -> None:
        """Send an event. Raises `WebSocketDisconnect` if the client has disconnected."""
        sent = event if lane is None else {**event, "stream_id": lane}
        await self._socket.send_text(orjson.dumps(sent).decode())


def _lane_of(request: Event) -> str | None:
    """Raises `ApiError`."""
    lane = request.get("stream_id")
    if lane is not None and (not isinstance(lane, str) or not _STREAM_ID.fullmatch(lane)):
        raise invalid(
            "stream_id: 1 to 256 letters, digits, '_', '-' and '.'", "stream_id", "invalid_value"
        )
    return lane


def _body_of(request: Event) -> Event:
    """Return the body of the equivalent POST. Raises `ApiError` for a request that a connection
    can't serve."""
    if request.get("background"):
        raise invalid(
            "background: a WebSocket streams the responses that it requests; POST a background "
            "response",
            "background",
            "unsupported_parameter",
        )
    if request.get("generate") is False:
        raise invalid(
            "generate: false is not supported; every request generates a response",
            "generate",
            "unsupported_parameter",
        )
    body = {name: value for name, value in request.items() if name not in _OF_ENVELOPE}
    return {**body, "stream": True}


def _not_steered(request: Event) -> Event:
    return {
        "type": "response.steer.failed",
        "sequence_number": 0,
        "error": {
            "type": "invalid_request_error",
            "code": "steering_not_supported",
            "message": "a running response takes no further input: send the input with the next"
            " `response.create`",
        },
        "steer": {
            "input": request.get("input"),
            "previous_response_id": request.get("previous_response_id"),
        },
    }


def _error_event(error: ApiError) -> Event:
    details = {**error.body["error"], **({"headers": error.headers} if error.headers else {})}
    return {"type": "error", "status": error.status, "error": details}
