"""Exports ended runs from the bus to a collector, by a reader in parallel to the recorder's.

No run depends on it. A batch that can't be delivered waits on the bus and is offered again, up to
`keep_seconds` after the collector was last reached; then it is dropped, and counted. Waiting
batches are also dropped when there are more than `MAX_WAITING` ended runs: they use Redis memory,
and no run is admitted while too many wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from pydantic import TypeAdapter, ValidationError
from redis.exceptions import ResponseError

from loopline.agents.errors import AgentError
from loopline.agents.usage import UsageEntry
from loopline.bus import Bus, LogConsumer, Shard, retry_during_outage
from loopline.workers.installation import install_hint
from loopline.workers.recorder import Entry, ended_run
from loopline.workers.settings import RecorderSettings
from loopline.workers.tracing.conventions import Conventions
from loopline.workers.tracing.outbox import span_of
from loopline.workers.tracing.spans import (
    CollectorUnavailable,
    Span,
    SpansRefused,
    is_sampled,
    spans_of,
)

if TYPE_CHECKING:
    from loopline.workers.tracing.otlp import Collector

log = structlog.get_logger("loopline.workers.tracing")

GROUP = "tracer"
MAX_WAITING = 5_000
"""Maximum number of waiting ended runs of a shard; half of `bus.max_unrecorded` if that is less."""
PROBE_SECONDS = 10.0
"""Time between two attempts to reach a collector for which nothing waits any more."""
BATCH = 50
"""Maximum number of ended runs in one request: with their content they may be large."""
SPAN_BATCH = 500
"""Maximum number of single spans in one request."""
_LEDGER = TypeAdapter(list[UsageEntry])


class MissingPackage(AgentError):
    """Traces are enabled, but the package that encodes them is not installed."""


@dataclass(frozen=True)
class TraceReaders:
    """Readers of one recorder."""

    readers: list[LogConsumer]
    exporter: TraceExporter | None

    def details(self) -> dict[str, int]:
        """Counts of spans for the worker's presence."""
        if self.exporter is None:
            return {}
        return {"spans_sent": self.exporter.sent, "spans_dropped": self.exporter.dropped}


class TraceExporter:
    """Sends the traces of a deployment's ended runs."""

    def __init__(
        self, bus: Bus, collector: Collector, conventions: Conventions, settings: RecorderSettings
    ) -> None:
        self.sent = 0
        """Number of spans that the collector accepted."""
        self.dropped = 0
        """Number of spans that the collector refused or will never get."""
        self._bus = bus
        self._collector = collector
        self._conventions = conventions
        self._settings = settings.tracing
        self._linger = settings.linger_seconds
        self._unreachable_since: float | None = None
        self._gives_up = False
        """Whether the collector was unreachable for so long that nothing waits for it any more."""
        self._next_try = 0.0
        """Time of the next attempt to reach it in that state; a server that never answers then
        delays nothing."""
        self._ledger_unreadable = False

    def reader(self, shard: Shard) -> LogConsumer:
        async def export(entries: Sequence[Entry]) -> None:
            await self._export(shard, entries)

        return LogConsumer(
            self._bus,
            shard.trajectories,
            GROUP,
            export,
            batch=BATCH,
            linger=self._linger,
            logs_itself=(CollectorUnavailable,),
        )

    def span_reader(self, shard: Shard) -> LogConsumer:
        """Return a reader of the spans that gateways and tool workers leave on the bus."""

        async def export(entries: Sequence[Entry]) -> None:
            await self._deliver(shard, self._spans(entries))

        return LogConsumer(
            self._bus,
            shard.spans,
            GROUP,
            export,
            batch=SPAN_BATCH,
            linger=self._linger,
            logs_itself=(CollectorUnavailable,),
        )

    async def _export(self, shard: Shard, entries: Sequence[Entry]) -> None:
        """Export ended runs. Raises `CollectorUnavailable` while the batch is to be offered
        again."""
        await self._deliver(shard, await self._traces(shard, entries))

    async def _deliver(self, shard: Shard, traces: Sequence[Sequence[Span]]) -> None:
        """Send traces, or drop them once the collector is given up. Raises `CollectorUnavailable`
        while the batch is to be offered again."""
        try:
            if self._gives_up and time.monotonic() < self._next_try:
                self.dropped += sum(map(len, traces))
            else:
                await self._send(traces)
        except CollectorUnavailable as error:
            self._note_unreachable(error)
            self._gives_up = not await self._may_wait(shard)
            if not self._gives_up:
                raise
            self._next_try = time.monotonic() + PROBE_SECONDS
            self.dropped += sum(map(len, traces))

    async def _send(self, traces: Sequence[Sequence[Span]]) -> None:
        """Send traces. If the collector refuses a batch, it is sent in halves, so that one bad
        trace does not affect the others."""
        spans = [span for trace in traces for span in trace]
        if not spans:
            return
        try:
            await self._collector.send(spans, self._conventions.schema_url)
        except SpansRefused as error:
            if len(traces) > 1:
                half = len(traces) // 2
                await self._send(traces[:half])
                await self._send(traces[half:])
                return
            self.dropped += len(spans)
            log.error("trace refused by the collector", url=self._collector.url,
                      trace_id=spans[0].trace_id, why=str(error))  # fmt: skip
        else:
            self.sent += len(spans)
        self._note_reached()

    def _note_unreachable(self, error: CollectorUnavailable) -> None:
        if self._unreachable_since is None:
            self._unreachable_since = time.monotonic()
            log.error(
                "the trace collector can't be reached: runs continue, their traces wait",
                url=self._collector.url, why=str(error),
                dropped_after_seconds=self._settings.keep_seconds,
            )  # fmt: skip

    def _note_reached(self) -> None:
        if self._unreachable_since is not None:
            seconds = time.monotonic() - self._unreachable_since
            log.info("the trace collector can be reached again", url=self._collector.url,
                     seconds=round(seconds, 1), spans_dropped=self.dropped)  # fmt: skip
        self._unreachable_since = None
        self._gives_up = False

    async def _may_wait(self, shard: Shard) -> bool:
        assert self._unreachable_since is not None
        if time.monotonic() - self._unreachable_since > self._settings.keep_seconds:
            return False
        most = min(MAX_WAITING, self._bus.settings.max_unrecorded // 2)
        return await self._bus.redis.xlen(shard.trajectories) <= most

    def _spans(self, entries: Sequence[Entry]) -> list[list[Span]]:
        """Each span as a separate trace, so that a refused one does not affect the others."""
        spans: list[list[Span]] = []
        for entry, fields in entries:
            try:
                spans.append([span_of(fields)])
            except ValueError as error:
                log.warning("span can't be read", entry=entry, why=str(error)[:300])
        return spans

    async def _traces(self, shard: Shard, entries: Sequence[Entry]) -> list[list[Span]]:
        """Spans of each run. A run that can't be read has none: the recorder sets it aside and
        reports it."""
        traces: list[list[Span]] = []
        ledgers = await self._ledgers(shard, [fields[b"run_id"].decode() for _, fields in entries])
        for (entry, fields), ledger in zip(entries, ledgers, strict=True):
            try:
                trajectory = ended_run(fields)
                if is_sampled(trajectory.run, self._settings.sample):
                    traces.append(await spans_of(trajectory, self._conventions, ledger))
            except Exception as error:  # noqa: BLE001 - one run must not keep the others
                why = f"{type(error).__name__}: {error}"[:300]
                log.warning("run not traced", entry=entry, why=why)
        return traces

    async def _ledgers(self, shard: Shard, run_ids: Sequence[str]) -> list[list[UsageEntry]]:
        """Usage entries of each run; empty if a run's list has expired or can't be read."""
        async with self._bus.redis.pipeline(transaction=False) as pipe:
            for run_id in run_ids:
                pipe.lrange(shard.usage(run_id), 0, -1)
            replies: list[list[bytes] | Exception] = await pipe.execute(raise_on_error=False)
        return [self._entries(reply) for reply in replies]

    def _entries(self, reply: list[bytes] | Exception) -> list[UsageEntry]:
        try:
            if isinstance(reply, Exception):
                raise reply
            return _LEDGER.validate_json(b"[" + b",".join(reply) + b"]")
        except (ResponseError, ValidationError) as error:
            if not self._ledger_unreadable:
                log.warning("the ledger of runs can't be read: traces lack discarded calls",
                            why=str(error)[:300])  # fmt: skip
            self._ledger_unreadable = True
            return []


@asynccontextmanager
async def trace_readers(bus: Bus, settings: RecorderSettings) -> AsyncGenerator[TraceReaders]:
    """The readers that a recorder runs for its deployment's traces. Raises `MissingPackage`."""
    tracing = settings.tracing
    shards = bus.keys.all_shards()
    if tracing.endpoint is None:
        # A recorder that traced earlier has left its group, whose unread entries are never trimmed.
        left = [shard for shard in shards if await _has_group(bus, shard)]
        yield TraceReaders([_forgetting(bus, shard) for shard in left], None)
        return
    try:
        from loopline.workers.tracing.otlp import Collector
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "tracing.endpoint is set, and opentelemetry-proto is not installed; "
            + install_hint("otel")
        ) from error

    conventions = Conventions(
        semconv=tracing.semconv,
        content=tracing.content,
        providers=settings.providers,
        priced_pools=frozenset(settings.priced_pools),
    )
    headers: dict[str, str] = {}
    for name, variable in tracing.headers_env.items():
        if (value := os.environ.get(variable)) is None:
            log.error("a header of tracing.headers_env is not sent: its variable is not set",
                      header=name, variable=variable)  # fmt: skip
        else:
            headers[name] = value
    async with Collector(tracing.endpoint, headers, tracing.timeout_seconds) as collector:
        exporter = TraceExporter(bus, collector, conventions, settings)
        readers = [
            make(shard) for shard in shards for make in (exporter.reader, exporter.span_reader)
        ]
        yield TraceReaders(readers, exporter)


async def _has_group(bus: Bus, shard: Shard) -> bool:
    async def look() -> bool:
        try:
            groups = await bus.redis.xinfo_groups(shard.trajectories)
        except ResponseError:  # there is no stream yet
            return False
        return any(group["name"] == GROUP.encode() for group in groups)

    return await retry_during_outage("look for the tracer's group", look)


def _forgetting(bus: Bus, shard: Shard) -> LogConsumer:
    async def forget(entries: Sequence[Entry]) -> None:
        pass

    return LogConsumer(bus, shard.trajectories, GROUP, forget)
