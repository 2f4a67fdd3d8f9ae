"""A span for each HTTP request that admits a run, between the client's span and the run's, and for
any other request whose client sent a trace that it records.

The result of a request is known when its answer is complete; for a stream, after its last byte.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loopline.bus import TRACEPARENT_HEADER, TRACEPARENT_TAG, Bus, TraceContext, trace_id_of
from loopline.runtime.gateway.http import header
from loopline.workers.tracing.conventions import Conventions
from loopline.workers.tracing.outbox import SpanOutbox, new_span_id
from loopline.workers.tracing.spans import Span

_KEY = "loopline.span"
_HEADER = TRACEPARENT_HEADER.encode()
CLIENT_GONE = 499


@dataclass
class RequestSpan:
    """Span of a request in progress."""

    outbox: SpanOutbox
    id: str
    client: TraceContext | None
    """Trace context that the client sent."""
    run_id: str = ""
    """Run that the request admitted or joined."""
    is_parent: bool = False
    """Whether this request admitted the run, whose span is then a child of this one."""

    def tags(self, run_id: str) -> dict[str, str]:
        """Return the tags of a run that this request admits."""
        self.run_id, self.is_parent = run_id, True
        return {TRACEPARENT_TAG: str(self._context(run_id))}

    def _context(self, run_id: str) -> TraceContext:
        if self.client is not None:
            return TraceContext(self.client.trace_id, self.id, self.client.sampled)
        return TraceContext(trace_id_of(run_id), self.id, self.outbox.samples(run_id))

    @property
    def context(self) -> TraceContext | None:
        """Context of the span in its trace; None for a trace that is not recorded."""
        if self.client is None and not self.is_parent:
            return None
        context = self._context(self.run_id)
        return context if context.sampled else None


class HttpSpans:
    """Middleware around the application of a gateway that traces."""

    def __init__(self, app: ASGIApp, bus: Bus, outbox: SpanOutbox, worker: str) -> None:
        self._app = app
        self._bus = bus
        self._outbox = outbox
        self._worker = worker
        self._conventions = Conventions()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_api(scope["path"]):
            await self._app(scope, receive, send)
            return
        traceparent = next((value for key, value in scope["headers"] if key == _HEADER), b"")
        client = TraceContext.parse(traceparent.decode("latin-1"))
        span = scope[_KEY] = RequestSpan(self._outbox, new_span_id(), client)
        started, status = self._bus.clock.now(), CLIENT_GONE

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        finally:
            self._leave(scope, span, started, status)

    def _leave(self, scope: Scope, span: RequestSpan, started: float, status: int) -> None:
        context = span.context
        if context is None:
            return
        name, attributes = self._conventions.http_request(
            scope["method"], _route(scope), scope["path"][:1_000], status, span.run_id
        )
        self._outbox.add(
            span.run_id or context.trace_id,
            Span(
                name=name,
                trace_id=context.trace_id,
                span_id=span.id,
                parent_id="" if span.client is None else span.client.span_id,
                started=started,
                ended=max(started, self._bus.clock.now()),
                attributes=attributes,
                kind="server",
                worker=self._worker,
                # Per the conventions, a client error is not a server error.
                error=f"status {status}" if status >= 500 else "",
            ),
        )


def span_of(request: HTTPConnection) -> RequestSpan | None:
    """Return the span of a request if this gateway traces."""
    return request.scope.get(_KEY)


def trace_tags(request: HTTPConnection, run_id: str) -> dict[str, str]:
    """Return the tag that adds a run to a trace: to this request's span, or else to the client's
    span if the client sends a valid W3C `traceparent`. An invalid header is not an error, as the
    standard requires."""
    if (span := span_of(request)) is not None:
        return span.tags(run_id)
    context = TraceContext.parse(header(request, TRACEPARENT_HEADER) or "")
    return {} if context is None else {TRACEPARENT_TAG: str(context)}


def note_joined(request: HTTPConnection, run_id: str) -> None:
    """Record that a request joined an existing run."""
    if (span := span_of(request)) is not None and not span.run_id:
        span.run_id = run_id


def _is_api(path: str) -> bool:
    return path.startswith(("/v1/", "/sessions/"))


def _route(scope: Scope) -> str:
    """Return the path with parameter names instead of values, so that there are few different
    routes."""
    if "endpoint" not in scope:
        return "/"  # no route matches
    route = scope["path"]
    for name, value in scope.get("path_params", {}).items():
        route = route.replace(f"/{value}", f"/{{{name}}}", 1)
    return route
