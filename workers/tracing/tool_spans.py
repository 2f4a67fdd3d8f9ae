"""The span of a tool worker's work, below that of the call: the call's own times are from its role,
and include the way to the worker and back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)

from loopline.bus import Bus, Delivery, TraceContext
from loopline.workers.messages import ToolPayload
from loopline.workers.settings import ToolWorkerSettings
from loopline.workers.tracing.conventions import Conventions
from loopline.workers.tracing.outbox import SpanOutbox, new_span_id, span_outbox
from loopline.workers.tracing.spans import Span


@asynccontextmanager
async def trace_calls(
    bus: Bus, settings: ToolWorkerSettings, worker: str
) -> AsyncGenerator[Callable[[Delivery], AbstractContextManager[None]]]:
    """A wrapper for the work of a call that leaves a span of it, if tracing is enabled."""
    async with span_outbox(bus, settings.tracing) as outbox:
        if outbox is None:
            yield lambda delivery: nullcontext()
            return
        conventions = Conventions(semconv=settings.tracing.semconv)

        @contextmanager
        def trace(delivery: Delivery) -> Generator[None]:
            started, error = bus.clock.now(), ""
            try:
                yield
            except BaseException as failure:
                error = type(failure).__name__
                raise
            finally:
                _leave_span(outbox, conventions, delivery, worker, started, error)

        yield trace


def _leave_span(
    outbox: SpanOutbox,
    conventions: Conventions,
    delivery: Delivery,
    worker: str,
    started: float,
    error: str,
) -> None:
    envelope, payload = delivery.envelope, delivery.payload
    call = TraceContext.parse(envelope.traceparent)
    if call is None or not outbox.samples(envelope.run_id, call):
        return
    assert isinstance(payload, ToolPayload)
    name, attributes = conventions.tool_work(payload.name, envelope.run_id, delivery.lease.count)
    if error:
        attributes["error.type"] = error
    span = Span(
        name=name,
        trace_id=call.trace_id,
        span_id=new_span_id(),
        parent_id=call.span_id,
        started=started,
        ended=max(started, delivery.bus.clock.now()),
        attributes=attributes,
        kind="server",
        worker=worker,
        error=error,
    )
    outbox.add(envelope.run_id, span)
