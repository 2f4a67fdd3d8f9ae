"""A trace collector for tests: decodes OTLP/HTTP requests."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2 as otlp

ERROR = otlp.Status.STATUS_CODE_ERROR


@dataclass(frozen=True)
class Received:
    """A received span."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    started: int
    """Nanoseconds since 1970."""
    ended: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    schema_url: str
    failed: bool
    message: str
    events: list[str]
    links: list[str]

    @property
    def instance(self) -> str:
        """The process that it claims to come from."""
        return self.resource.get("service.instance.id", "")


@dataclass
class TestCollector:
    """Keeps all spans; it refuses them while `status` is not 200."""

    __test__ = False

    url: str = ""
    status: int = 200
    refuses: bytes | None = None
    """The collector refuses requests that contain these bytes."""
    requests: int = 0
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    spans: list[Received] = field(default_factory=list[Received])

    def of_trace(self, trace_id: str) -> list[Received]:
        """Return each span once, ignoring repeated deliveries."""
        spans = {span.span_id: span for span in self.spans if span.trace_id == trace_id}
        return sorted(spans.values(), key=lambda span: (span.started, -span.ended))

    def take(self, body: bytes) -> None:
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(resource_spans.resource.attributes)
            for scope_spans in resource_spans.scope_spans:
                self.spans += [
                    _received(span, resource, scope_spans.schema_url) for span in scope_spans.spans
                ]


def _received(span: otlp.Span, resource: dict[str, Any], schema_url: str) -> Received:
    return Received(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        kind=otlp.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        started=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        resource=resource,
        schema_url=schema_url,
        failed=span.status.code == ERROR,
        message=span.status.message,
        events=[event.name for event in span.events],
        links=[link.trace_id.hex() for link in span.links],
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    assert kind is not None
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collecting(port: int = 0) -> Generator[TestCollector]:
    """A listening collector."""
    collector = TestCollector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests += 1
            collector.headers.append({key.lower(): value for key, value in self.headers.items()})
            status = collector.status
            if self.path != "/v1/traces":
                status = 404
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if collector.refuses is not None and collector.refuses in body:
                status = 400
            if status == 200:
                assert self.headers["Content-Type"] == "application/x-protobuf"
                collector.take(body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        collector.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
