"""Spans that do not come from a run's records: of HTTP requests at a gateway, and of tools in their
worker.

Their processes leave them on the bus, and the recorder sends them with the traces of runs, so that
only the recorder needs the collector's address and key. Spans that a killed process has not left
yet are lost, and so are spans that no recorder takes: the stream keeps the newest `MAX_WAITING`
spans of a shard.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import structlog
from pydantic import TypeAdapter

from loopline.bus import Bus, TraceContext, trace_id_of
from loopline.bus.connection import OUTAGE
from loopline.bus.keys import STREAM_LIFE_MS
from loopline.workers.settings import TracingSettings
from loopline.workers.tracing.spans import Span

log = structlog.get_logger("loopline.workers.tracing")

FIELD = b"span"
MAX_WAITING = 20_000
"""Maximum number of spans in a shard's stream; a span has about half a kilobyte."""
MAX_UNSENT = 10_000
"""Maximum number of spans in this process while Redis is down."""
FLUSH_SECONDS = 0.5
_SPAN = TypeAdapter(Span)


def new_span_id() -> str:
    """Return a random id, for a span that no other process refers to before it is exported."""
    return os.urandom(8).hex()


class SpanOutbox:
    """Spans of one process that wait for the recorder."""

    def __init__(self, bus: Bus, tracing: TracingSettings) -> None:
        self.dropped = 0
        """Number of spans that were dropped for lack of room."""
        self.bus = bus
        self._sample = tracing.sample
        self._waiting: deque[tuple[str, bytes]] = deque()

    def samples(self, run_id: str, context: TraceContext | None = None) -> bool:
        """Whether a run's trace is recorded. If its trace context contains its creator's decision,
        that applies; for a trace id derived from the run's id, the id's random bits decide."""
        trace_id = trace_id_of(run_id)
        if context is not None and (context.trace_id != trace_id or not context.sampled):
            return context.sampled
        return bool(trace_id) and int(trace_id[-14:], 16) < self._sample * (1 << 56)

    def add(self, run_id: str, span: Span) -> None:
        """Leave a span; `run_id` decides its shard."""
        if len(self._waiting) >= MAX_UNSENT:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append((run_id, orjson.dumps(span)))

    async def run(self) -> None:
        """Send the waiting spans until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Put the waiting spans on the bus. During an outage they stay here."""
        if not self._waiting:
            return
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        keys = self.bus.keys
        try:
            async with self.bus.redis.pipeline(transaction=False) as pipe:
                streams: set[str] = set()
                for run_id, span in batch:
                    stream = keys.shard_of(run_id).spans
                    streams.add(stream)
                    pipe.xadd(stream, {FIELD: span}, maxlen=MAX_WAITING, approximate=True)
                for stream in streams:
                    pipe.pexpire(stream, STREAM_LIFE_MS)
                await pipe.execute()
        except OUTAGE as error:
            room = MAX_UNSENT - len(self._waiting)
            self._waiting.extendleft(reversed(batch[max(0, len(batch) - room) :]))
            self.dropped += max(0, len(batch) - room)
            log.debug("spans wait for Redis", error=str(error), spans=len(self._waiting))


@asynccontextmanager
async def span_outbox(bus: Bus, tracing: TracingSettings) -> AsyncGenerator[SpanOutbox | None]:
    """The outbox of this process while it serves; None without tracing."""
    if tracing.endpoint is None:
        yield None
        return
    async with flushing(outbox := SpanOutbox(bus, tracing)):
        yield outbox


@asynccontextmanager
async def flushing(outbox: SpanOutbox) -> AsyncGenerator[None]:
    """Send the outbox's spans to the bus in the background while the block runs."""
    task = outbox.bus.background.start(outbox.run(), name="spans")
    try:
        yield
    finally:
        await outbox.bus.background.stop([task])
        await outbox.flush()


def span_of(fields: dict[bytes, bytes]) -> Span:
    """Parse a span from the bus. Raises ValueError for an invalid one."""
    raw: Any = fields.get(FIELD, b"")
    return _SPAN.validate_json(raw)
