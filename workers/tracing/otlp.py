"""Spans in OTLP's binary format, and their transport to a collector over HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from importlib.metadata import version

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2 as otlp

from loopline.bus import TraceContext
from loopline.workers.engines.openai.proxy import ProxyUnusable, proxy_for
from loopline.workers.tracing.conventions import Attributes, Value
from loopline.workers.tracing.spans import CollectorUnavailable, Span, SpanEvent, SpansRefused

SERVICE = "loopline"
_VERSION = version("loopline")
PATH = "/v1/traces"
_REFUSED = frozenset({400, 413, 415, 422})
"""HTTP statuses of errors in the spans. Any other error is for a person to fix: a key, a path."""
_KINDS = {
    "internal": otlp.Span.SPAN_KIND_INTERNAL,
    "server": otlp.Span.SPAN_KIND_SERVER,
    "client": otlp.Span.SPAN_KIND_CLIENT,
}
_REMOTE = 0x300
"""Span flags of a span whose parent is in another process."""
_SAMPLED = 0x01


def encode(spans: Sequence[Span], schema_url: str) -> bytes:
    """An `ExportTraceServiceRequest`; the spans of each worker belong to one service instance."""
    by_worker: dict[str, list[otlp.Span]] = {}
    for span in spans:
        by_worker.setdefault(span.worker, []).append(_span(span))
    scope = InstrumentationScope(name="loopline", version=_VERSION)
    return ExportTraceServiceRequest(
        resource_spans=[
            otlp.ResourceSpans(
                resource=_resource(worker),
                scope_spans=[otlp.ScopeSpans(scope=scope, spans=encoded, schema_url=schema_url)],
            )
            for worker, encoded in by_worker.items()
        ]
    ).SerializeToString()


def _resource(worker: str) -> Resource:
    attributes: Attributes = {"service.name": SERVICE, "service.version": _VERSION}
    if worker:
        attributes["service.instance.id"] = worker
    return Resource(attributes=_attributes(attributes))


def _span(span: Span) -> otlp.Span:
    status = None
    if span.error:
        status = otlp.Status(code=otlp.Status.STATUS_CODE_ERROR, message=span.error)
    return otlp.Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id),
        flags=_SAMPLED | (_REMOTE if span.parent_id else 0x100),
        name=span.name,
        kind=_KINDS[span.kind],
        start_time_unix_nano=_nanoseconds(span.started),
        end_time_unix_nano=_nanoseconds(span.ended),
        attributes=_attributes(span.attributes),
        events=[_event(event) for event in span.events],
        links=[_link(link) for link in span.links],
        status=status,
    )


def _event(event: SpanEvent) -> otlp.Span.Event:
    return otlp.Span.Event(
        name=event.name,
        time_unix_nano=_nanoseconds(event.at),
        attributes=_attributes(event.attributes),
    )


def _link(link: TraceContext) -> otlp.Span.Link:
    return otlp.Span.Link(
        trace_id=bytes.fromhex(link.trace_id), span_id=bytes.fromhex(link.span_id)
    )


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _attributes(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(value)) for name, value in attributes.items()]


def _value(value: Value) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int() if -(2**63) <= value < 2**63:
            return AnyValue(int_value=value)
        case int():
            return AnyValue(string_value=str(value))
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case _:
            texts = [AnyValue(string_value=text) for text in value]
            return AnyValue(array_value=ArrayValue(values=texts))


class Collector:
    """An endpoint that takes spans by OTLP over HTTP. A context manager."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], timeout: float) -> None:
        """`endpoint` is the base URL; `timeout` is in seconds."""
        base = endpoint.rstrip("/")
        self.url = base if base.endswith(PATH) else base + PATH
        self._no_proxy = ""
        """Why the proxy that the environment sets for this endpoint can't be used."""
        proxy = None
        try:
            proxy = proxy_for(self.url)
        except ProxyUnusable as error:
            self._no_proxy = str(error)
        self._http = httpx.AsyncClient(
            headers={
                **headers,
                "Content-Type": "application/x-protobuf",
                "Content-Encoding": "gzip",
                "User-Agent": f"loopline/{_VERSION}",
            },
            timeout=timeout,
            proxy=None if proxy is None else proxy.url,
            verify=httpx.create_ssl_context(),
            trust_env=False,
        )

    async def __aenter__(self) -> Collector:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._http.aclose()

    async def send(self, spans: Sequence[Span], schema_url: str) -> None:
        """Send spans. Raises `CollectorUnavailable` (transient) or `SpansRefused` (permanent)."""
        try:
            body = gzip.compress(encode(spans, schema_url), 1)
        except (ValueError, TypeError) as error:
            raise SpansRefused(f"they can't be encoded: {error}") from error
        if self._no_proxy:
            raise CollectorUnavailable(self._no_proxy)
        try:
            answer = await self._http.post(self.url, content=body)
        except httpx.HTTPError as error:
            raise CollectorUnavailable(f"{type(error).__name__}: {error}") from error
        if answer.status_code in _REFUSED:
            raise SpansRefused(f"HTTP {answer.status_code}: {answer.text[:200]}")
        if answer.status_code >= 300:
            raise CollectorUnavailable(f"HTTP {answer.status_code}")
