"""Limits on the resources of a connection before it has sent a request.

uvicorn waits for a connection's first request without a limit and reads headers of any size: ten
thousand silent clients would occupy ten thousand connections.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from loopline.runtime.gateway.plain_parser import PlainParser

log = structlog.get_logger("loopline.runtime.gateway")

MAX_HEADER_BYTES = 65_536
SPARE_FILES = 256
"""File descriptors for everything except clients: the bus, logs, libraries."""


class WholeAnswers:
    """A transport that writes the head and the body of a complete answer together. uvicorn writes
    them separately, and each write is a packet that wakes the client. The head of a stream, whose
    length is unknown, is not held back.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and b"\r\ncontent-length: " in data:
            self._head = data
            return
        self._transport.write(data)

    def close(self) -> None:
        """Close the transport, after writing the head of an answer whose body never came."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose headers are late or too large, and ignores offers of HTTP/2."""

    header_seconds: float
    """Seconds from a connection's start, or the start of a request, to the end of the request's
    headers."""
    _late: asyncio.TimerHandle | None = None
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.parser = PlainParser(self, self._should_upgrade)  # type: ignore[assignment]
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_headers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._late is not None:
            self._header_bytes += len(data)
        super().data_received(data)
        # The headers are not complete, so all data so far was headers. The body has its own limit.
        if self._late is not None and self._header_bytes > MAX_HEADER_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        if self._late is None:
            self._expect_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._have_headers()
        super().on_headers_complete()
        if self.scope["method"] == "POST":  # all its answers have a body
            self.cycle.transport = WholeAnswers(self.transport)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():  # else its body follows: see PlainParser
            super().on_message_complete()

    def _expect_headers(self) -> None:
        self._header_bytes = 0
        self._late = asyncio.get_running_loop().call_later(self.header_seconds, self._close_late)

    def _have_headers(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close_late(self) -> None:
        self._late = None
        self.transport.close()


def bounded_protocol(seconds: float) -> type[BoundedProtocol]:
    """Return the protocol with a limit of `seconds` for headers."""

    class Protocol(BoundedProtocol):
        header_seconds = seconds

    return Protocol


def connection_limit(wanted: int) -> int:
    """Return how many connections this process can hold, after raising its limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            log.warning(
                "fewer connections than configured", limit=soft - SPARE_FILES, open_files=soft
            )
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft - SPARE_FILES))
