"""The gateway's routes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from loopline.agents.errors import AgentError
from loopline.agents.records import Trajectory
from loopline.bus import BusError
from loopline.bus.connection import OUTAGE
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.dashboard.dashboard import dashboard
from loopline.runtime.errors import UserError
from loopline.runtime.gateway import idempotency, sessions
from loopline.runtime.gateway.chat_request import ChatRequest
from loopline.runtime.gateway.chat_response import answer_of, completion_body
from loopline.runtime.gateway.chat_stream import Chunk, StreamShape
from loopline.runtime.gateway.embeddings_api import EmbeddingsApi
from loopline.runtime.gateway.errors import (
    ApiError,
    defect,
    invalid,
    not_allowed,
    translated,
    unavailable,
    validated,
)
from loopline.runtime.gateway.event_stream import event, event_stream, start_stream
from loopline.runtime.gateway.http import (
    Http,
    flag_in,
    header,
    json_response,
    run_headers,
    while_connected,
)
from loopline.runtime.gateway.http_spans import HttpSpans, note_joined, trace_tags
from loopline.runtime.gateway.openapi import openapi_document
from loopline.runtime.gateway.responses_api import ResponsesApi
from loopline.runtime.gateway.responses_socket import ResponsesSocket
from loopline.runtime.gateway.runs_api import RunsApi
from loopline.runtime.gateway.service import (
    RESERVED_TAGS,
    RESPONSE_TAG,
    Admitted,
    Question,
    Service,
    seen,
)
from loopline.runtime.gateway.short_cut import Failure, ShortCut, handlers
from loopline.runtime.gateway.waiting_api import WaitingApi
from loopline.workers.tracing.outbox import SpanOutbox

METRICS = "metrics"
"""Name in a key's list of models that only allows reading `/metrics`."""
HEADERS_SECONDS = 2.0
"""Seconds to wait for the first chunk of a stream, so that a refusal gets its own HTTP status.
After that the stream starts, and a refusal is one of its events."""


def gateway_app(
    service: Service, state: StateDirectory, outbox: SpanOutbox | None = None, worker: str = ""
) -> ASGIApp:
    """Return the application of one gateway. With an outbox, it puts its requests' spans there as
    spans of `worker`."""
    http = Http(service)
    gateway, embeddings = Gateway(service, http), EmbeddingsApi(service, http)
    routes: list[BaseRoute] = []
    for prefix in ("/v1", "/sessions/{session}/v1"):
        routes += [
            Route(f"{prefix}/chat/completions", gateway.create_chat, methods=["POST"]),
            Route(f"{prefix}/chat/completions/{{id}}", gateway.get_chat, methods=["GET"]),
            Route(f"{prefix}/models", gateway.list_models, methods=["GET"]),
            Route(f"{prefix}/models/{{id:path}}", gateway.get_model, methods=["GET"]),
            Route(f"{prefix}/embeddings", embeddings.create, methods=["POST"]),
        ]
    responses = ResponsesApi(service, http)
    routes += [*responses.routes(), *ResponsesSocket(service, http, responses).routes()]
    routes += RunsApi(service, http).routes()
    routes += WaitingApi(service, http).routes()
    routes.append(dashboard(service.client, service.settings, state))
    routes.append(Route("/openapi.json", gateway.openapi, methods=["GET"]))
    routes.append(Route("/metrics", gateway.metrics, methods=["GET"]))
    routes.append(Route("/health", gateway.health, methods=["GET"]))
    failures: dict[type[Exception], Failure] = {
        ApiError: _on_api_error,
        HTTPException: _on_http_error,
        **dict.fromkeys(OUTAGE, _on_outage),
        BusError: _on_client_error,
        UserError: _on_client_error,
        AgentError: _on_client_error,
        Exception: _on_defect,
    }
    posts = {"/v1/chat/completions": gateway.create_chat}
    app = ShortCut(Starlette(routes=routes, exception_handlers=handlers(failures)), posts, failures)
    return app if outbox is None else HttpSpans(app, service.client.bus, outbox, worker)


class Gateway:
    """Handlers of the routes."""

    def __init__(self, service: Service, http: Http) -> None:
        self._service = service
        self._http = http

    async def create_chat(self, request: Request) -> Response:
        caller = await self._http.caller(request)
        body = await self._http.body(request)
        chat = validated(ChatRequest, body, strict=True)
        if chat.metadata and any(tag in RESERVED_TAGS for tag in chat.metadata):
            raise invalid(f"metadata: {', '.join(RESERVED_TAGS)} are the gateway's own", "metadata")
        key = header(request, idempotency.HEADER)
        # An invalid id is refused before the run is admitted, and paid for.
        last_event = header(request, "last-event-id") if chat.stream else None
        last_seen = seen(last_event)
        if last_event:
            idempotency.check_continued(key)
        admitted = await self._service.admit(
            Question(
                caller=caller,
                model=chat.model,
                messages=chat.conversation,
                options=chat.options,
                generation=chat.generation,
                tags=chat.metadata or {},
                stream=bool(chat.stream),
                session=sessions.session_of(
                    request.path_params.get("session"),
                    header(request, sessions.HEADER),
                    caller.id,
                ),
                idempotency_key=key,
                body_digest="" if key is None else idempotency.digest_of("chat", body),
                trace_tags=partial(trace_tags, request),
            )
        )
        note_joined(request, admitted.run.id)
        if chat.stream:
            options = chat.stream_options
            shape = StreamShape(
                model=chat.model,
                created=int(admitted.run.created),
                include_usage=bool(options and options.include_usage),
                logprobs=bool(chat.logprobs),
                token_ids=bool(chat.return_token_ids),
                offered=tuple(tool.name for tool in chat.offered_tools),
            )
            return await self._stream(admitted, shape, last_seen)
        return await self._whole(
            request,
            admitted,
            chat.model,
            logprobs=bool(chat.logprobs),
            token_ids=bool(chat.return_token_ids),
        )

    async def get_chat(self, request: Request) -> Response:
        """Return an earlier completion: the whole, or its stream after an event."""
        caller = await self._http.caller(request)
        run_id = request.path_params["id"].removeprefix("chatcmpl-")
        admitted = await self._service.find(run_id, caller)
        if RESPONSE_TAG in admitted.run.tags or admitted.run.workflow == "embeddings":
            # Only the responses route knows whether a response was stored or deleted; vectors are
            # not a completion.
            raise ApiError(404, f"{run_id[:64]!r} is not a completion", code="run_not_found")
        model = self._service.model_of(admitted.run)
        if flag_in(request, "stream"):
            after = request.headers.get("last-event-id") or request.query_params.get(
                "starting_after"
            )
            shape = StreamShape(
                model=model,
                created=int(admitted.run.created),
                include_usage=True,
                logprobs=True,
                token_ids=True,
                offered=self._service.offered_tools(admitted.run),
            )
            return await self._stream(admitted, shape, seen(after))
        return await self._whole(request, admitted, model, logprobs=True, token_ids=True)

    async def list_models(self, request: Request) -> Response:
        caller = await self._http.caller(request)
        names = [name for name in await self._service.models.names() if caller.allows(name)]
        return json_response({"object": "list", "data": [_model(name) for name in names]})

    async def get_model(self, request: Request) -> Response:
        name = request.path_params["id"].rstrip("/")
        if not name:  # /v1/models/
            return await self.list_models(request)
        caller = await self._http.caller(request)
        await self._service.models.resolve(name)
        if not caller.allows(name):
            raise not_allowed(name)
        return json_response(_model(name))

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI document. This route needs no key."""
        return json_response(openapi_document())

    async def health(self, request: Request) -> Response:
        """Tell load balancers whether this process reaches its bus. This route needs no key."""
        try:
            await self._service.client.bus.redis.ping()  # pyright: ignore
        except OUTAGE as error:
            raise unavailable(f"Redis does not answer: {type(error).__name__}") from error
        return json_response({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        """Return the metrics of the whole deployment for Prometheus; every gateway returns the same
        answer."""
        caller = await self._http.caller(request)
        if not caller.allows(METRICS):
            raise not_allowed(METRICS)
        service = self._service
        if not service.settings.metrics.enabled:
            raise ApiError(
                404, "metrics are off: set metrics.enabled = true", code="metrics_disabled"
            )
        from loopline.runtime.observe.deployment_metrics import DeploymentMetrics

        figures = DeploymentMetrics(service.client.bus, service.settings)
        body, content_type = await figures.scrape(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def _whole(
        self,
        request: Request,
        admitted: Admitted,
        model: str,
        *,
        logprobs: bool,
        token_ids: bool,
    ) -> Response:
        def response_of(trajectory: Trajectory) -> Response:
            answer = answer_of(trajectory, model)
            body = completion_body(answer, logprobs=logprobs, token_ids=token_ids)
            return json_response(body, headers=run_headers(admitted))

        response = await while_connected(request, self._service.wait(admitted, response_of))
        return Response(status_code=499) if response is None else response  # 499: client gone

    async def _stream(
        self, admitted: Admitted, shape: StreamShape, last_seen: tuple[int, int, int]
    ) -> Response:
        chunks = self._service.stream(admitted, shape, last_seen)
        started = await start_stream(chunks, HEADERS_SECONDS)
        return event_stream(_events(started), _error_event, run_headers(admitted))


async def _events(chunks: AsyncGenerator[Chunk]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        async for chunk in chunks:
            data = b"[DONE]" if chunk.data is None else orjson.dumps(chunk.data)
            yield event(data, id=chunk.id)


def _error_event(error: ApiError) -> bytes:
    return event(orjson.dumps(error.body))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "loopline"}


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return json_response(error.body, error.status, error.headers)


async def _on_outage(request: Request, error: Exception) -> Response:
    """Answer a request whose Redis command failed in an outage and is not repeated here: the client
    may retry."""
    return await _on_api_error(
        request, unavailable(f"Redis does not answer: {type(error).__name__}")
    )


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:256]}: {error.detail}"
    if error.status_code == 404:
        message += f". {_advice(request.url.path)}"
    api_error = ApiError(
        error.status_code, message, code="not_found" if error.status_code == 404 else None
    )
    return json_response(api_error.body, error.status_code, dict(error.headers or {}))


def _advice(path: str) -> str:
    """Suggest the intended path of a request: clients join base URL and path by hand."""
    tail = path.rstrip("/").rpartition("/v1/")[2].strip("/")
    if tail in ("completions", "messages", "chat", "api/chat", "api/generate"):
        tail = "chat/completions"
    if tail in ("chat/completions", "responses", "embeddings", "models"):
        return f"Did you mean /v1/{tail}? A client's base URL ends in /v1"
    return "GET /openapi.json lists the paths"


async def _on_client_error(request: Request, error: Exception) -> Response:
    api_error = translated(error)
    return await (_on_defect if api_error is None else _on_api_error)(request, api_error or error)


async def _on_defect(request: Request, error: Exception) -> Response:
    """Answer a request that hit a defect; the server logs the traceback."""
    return json_response(defect().body, 500)
