"""Reads requests that offer another protocol, as what they also are: HTTP/1.1.

Java's HTTP client offers HTTP/2 (`Upgrade: h2c`) with every request to an `http://` address. A
server may ignore the offer (RFC 9110, section 7.8). But httptools stops after the head of such a
request: its body, and every later request of the connection, would be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_FRAMING = (b"content-length", b"transfer-encoding")
"""Headers that tell a parser where a body ends."""


class PlainParser:
    """Replaces the parser of a protocol, and ignores all offers that the protocol doesn't take.

    An ignored offer leaves the request incomplete for the protocol: its `on_message_complete` must
    do nothing while `should_upgrade()` is true. A second parser reads the body and then completes
    the request.
    """

    def __init__(self, protocol: HttpToolsProtocol, takes_offer: Callable[[], bool]) -> None:
        """`takes_offer`: whether the protocol changes to what the current request offers."""
        self._protocol = protocol
        self._takes_offer = takes_offer
        self._parser = _parser(protocol)

    def feed_data(self, data: bytes) -> None:
        """Raises `HttpParserUpgrade` for an offer that the protocol takes."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                if self._takes_offer():
                    raise
                data = data[offer.args[0] :]
                self._read_on()
            else:
                return

    def _read_on(self) -> None:
        """Replace the parser by one that is past the current request's head."""
        framing = [
            b"%b: %b\r\n" % header for header in self._protocol.headers if header[0] in _FRAMING
        ]
        self._parser = _parser(_PastHead(self._protocol))
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def _parser(callbacks: object) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(callbacks)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
    return parser


class _PastHead:
    """Passes on what a parser reads, except the first head, which the protocol already has."""

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol
        self._is_past = False
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if self._is_past:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._is_past:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_past:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_past:
            self._protocol.on_headers_complete()
        self._is_past = True
