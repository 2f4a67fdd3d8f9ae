"""HTTP/1.1 to an endpoint that is reached directly: bytes out, the answer through Node's parser.

A request here is one write and its answer mostly one read, with nothing in between that an endpoint
of chat completions has no use for: no cookies, no redirects, no tracing, no pool limits. It costs a
third of the processor time of aiohttp's client.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import lru_cache
from typing import Protocol, cast

import aiohappyeyeballs
import httptools
from yarl import URL

from loopline.workers.engines.openai.network import IDLE_SECONDS, NetworkError, error_text

MAX_HEAD_BYTES = 262_144
"""Of an answer's head, all its lines together."""
_NEXT_ADDRESS_SECONDS = 0.25
"""Before the next address of a host is tried alongside the one before (RFC 8305)."""
_BUFFER = 1_048_576
"""Bytes that wait for their reader before the connection is read no further."""
_PIECE = 1_048_576
"""Of what is unpacked, in one piece."""


class DirectHttp:
    """The connections to one endpoint, which serve one request after the other."""

    def __init__(
        self, headers: Mapping[str, str], verify: ssl.SSLContext | None, connect_seconds: float
    ) -> None:
        """`headers` go with each request, `verify` is for addresses with TLS."""
        self._headers = {"Accept": "*/*", "User-Agent": "loopline", **headers}
        self._verify = verify
        self._connect_seconds = connect_seconds
        self._idle: dict[tuple[str, int, bool], list[tuple[float, _Line]]] = {}
        """By where they lead: since when (the loop's clock), the last used at the end."""
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False
        self.head = lru_cache(maxsize=16)(self._head)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """The answer, whose head has arrived. Raises `NetworkError`."""
        place, head = self.head(url)
        lines = b"".join(_field(name, value) for name, value in headers.items())
        request = b"%b%bContent-Length: %d\r\n\r\n%b" % (head, lines, len(body), body)
        line = self._take(place) or await self._connect(place)
        try:
            answer = HttpAnswer(self, place, line)
            await line.send(request, answer)
        except BaseException:
            line.close()
            raise
        return answer

    async def aclose(self) -> None:
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for lines in self._idle.values():
            for _, line in lines:
                line.close()
        self._idle.clear()

    def give_back(self, place: tuple[str, int, bool], line: _Line) -> None:
        """An exchange is over. The connection serves another if all of the answer was read."""
        if not line.reusable or self._closed:
            line.close()
            return
        loop = asyncio.get_running_loop()
        self._idle.setdefault(place, []).append((loop.time(), line))
        if self._sweeping is None:
            self._sweeping = loop.call_later(IDLE_SECONDS, self._sweep)

    def _take(self, place: tuple[str, int, bool]) -> _Line | None:
        lines = self._idle.get(place, ())
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while lines:
            since, line = lines.pop()
            if line.reusable and since > oldest:
                return line
            line.close()
        return None

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - IDLE_SECONDS
        for place, lines in list(self._idle.items()):
            for since, line in lines:
                if since <= oldest:
                    line.close()
            self._idle[place] = [item for item in lines if item[1].reusable]
            if not self._idle[place]:
                del self._idle[place]
        self._sweeping = loop.call_later(IDLE_SECONDS, self._sweep) if self._idle else None

    async def _connect(self, place: tuple[str, int, bool]) -> _Line:
        host, port, encrypted = place
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                found = await loop.getaddrinfo(
                    host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
                )
                open_socket = await aiohappyeyeballs.start_connection(
                    found, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS, interleave=1
                )
                try:
                    _, line = await loop.create_connection(
                        _Line,
                        sock=open_socket,
                        ssl=self._verify if encrypted else None,
                        server_hostname=host.rstrip(".") if encrypted else None,
                    )
                except BaseException:
                    open_socket.close()
                    raise
        except TimeoutError as error:
            message = f"no connection to {host}:{port} within {self._connect_seconds:g} s"
            raise NetworkError(message, timed_out=True, never_sent=True) from error
        except (OSError, UnicodeError) as error:
            message = f"cannot connect to {host}:{port}: {error_text(error)}"
            raise NetworkError(message, never_sent=True) from error
        return line

    def _head(self, url: str) -> tuple[tuple[str, int, bool], bytes]:
        """Where an address leads, and the beginning of its requests. Raises `NetworkError`."""
        try:
            parsed = URL(url, encoded=url.isascii())
            host, port = parsed.raw_host, parsed.port
        except ValueError as error:
            raise NetworkError(error_text(error), never_sent=True) from error
        if not host or port is None or parsed.scheme not in ("http", "https"):
            raise NetworkError(f"{parsed.scheme!r} is no address of HTTP", never_sent=True)
        headers = {"Host": parsed.host_port_subcomponent or host, **self._headers}
        if parsed.user is not None and "Authorization" not in headers:
            pair = f"{parsed.user}:{parsed.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        lines = b"".join(_field(name, value) for name, value in headers.items())
        return (host, port, parsed.scheme == "https"), (
            f"POST {parsed.raw_path_qs} HTTP/1.1\r\n".encode() + lines
        )


def _field(name: str, value: str) -> bytes:
    if "\r" in value or "\n" in value or "\0" in value:
        raise ValueError(f"the header {name} would be cut by what is in its value")
    return f"{name}: {value}\r\n".encode()


class HttpAnswer:
    """An answer that arrives."""

    def __init__(self, http: DirectHttp, place: tuple[str, int, bool], line: _Line) -> None:
        self._http = http
        self._place = place
        self._line = line
        self._given_back = False
        self.status = 0
        self.headers: dict[str, str] = {}
        """By their names in small letters, each the first of its name."""

    async def parts(self) -> AsyncGenerator[bytes]:
        """The body as it arrives, unpacked. Raises `NetworkError`."""
        unpacking = _unpacking(self.headers.get("content-encoding", ""))
        while (piece := await self._line.piece()) is not None:
            if unpacking is None:
                yield piece
                continue
            for part in unpacking.unpack(piece):
                yield part
        if unpacking is not None and not unpacking.is_whole:
            raise NetworkError("the answer ends within its compressed body")

    async def aclose(self) -> None:
        """The connection serves another request if all of the answer was read."""
        if not self._given_back:
            self._given_back = True
            self._http.give_back(self._place, self._line)


class _Line(asyncio.Protocol):
    """A connection, and the answer that it brings now."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        # What aiohttp's client overlooks, too: servers write such heads.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._answer: HttpAnswer | None = None
        self._head_bytes = 0
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._paused = False
        self._reader: asyncio.Future[None] | None = None
        """Of whoever waits for the head, or for the next piece."""
        self._has_head = self._has_all = False
        self._is_interim = self._ends_with_connection = False
        self._keeps_alive = True
        self._error: NetworkError | None = None

    @property
    def reusable(self) -> bool:
        """Open, with nothing of an answer on its way."""
        transport = self._transport
        return (
            transport is not None
            and not transport.is_closing()
            and self._error is None
            and self._has_all
            and self._keeps_alive
            and not self._pieces
        )

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def _stands(self) -> bool:
        """Nothing more is read now."""
        return self._has_all or self._paused or self._error is not None

    async def send(self, request: bytes, answer: HttpAnswer) -> None:
        """Until the answer's head has arrived. Raises `NetworkError`."""
        self._answer, self._head_bytes = answer, 0
        self._has_head = self._has_all = self._ends_with_connection = False
        assert self._transport is not None
        try:
            self._transport.write(request)
        except RuntimeError as error:  # uvloop's word for a connection that was reset
            raise NetworkError(error_text(error)) from error
        while not self._has_head:
            await self._news()

    async def piece(self) -> bytes | None:
        """The next bytes of the body; None behind its end. Raises `NetworkError`."""
        while not self._pieces:
            if self._has_all:
                return None
            await self._news()
        piece = self._pieces.popleft()
        self._waiting -= len(piece)
        if self._paused and self._waiting < _BUFFER and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return piece

    async def _news(self) -> None:
        if self._error is not None:
            raise NetworkError(str(self._error), timed_out=self._error.timed_out)
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _fail(self, why: str) -> None:
        if self._error is None:
            self._error = NetworkError(why)
        self.close()
        self._wake()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._has_all:
            self._fail("bytes that nobody has asked for")
            return
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the endpoint wants to change the protocol")
        except httptools.HttpParserError as error:
            self._fail(f"not an answer of HTTP: {error_text(error)}")
        if not self._has_head and self._head_bytes > MAX_HEAD_BYTES:
            self._fail(f"the answer's head has more than {MAX_HEAD_BYTES} bytes")
        if self._waiting >= _BUFFER and self._transport is not None and not self._stands:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        if self._has_head and self._ends_with_connection and self._error is None:
            self._has_all, self._keeps_alive = True, False
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._has_all:
            what = "its end" if self._has_head else "its answer"
            why = f": {error_text(exc)}" if exc is not None else ""
            self._fail(f"the endpoint closed the connection before {what}{why}")

    # Of the parser.

    def on_message_begin(self) -> None:
        if self._has_all:
            self._error = NetworkError("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._answer is not None and not self._has_head:
            key = name.decode("latin-1").lower()
            self._answer.headers.setdefault(key, value.decode("utf-8", "replace"))

    def on_headers_complete(self) -> None:
        status, answer = self._parser.get_status_code(), self._answer
        if answer is None or self._has_all:
            return
        self._is_interim = 100 <= status < 200
        if self._is_interim:
            answer.headers.clear()
            return
        answer.status, self._has_head = status, True
        self._keeps_alive = self._parser.should_keep_alive()
        chunked = answer.headers.get("transfer-encoding", "").lower().endswith("chunked")
        self._ends_with_connection = not chunked and "content-length" not in answer.headers

    def on_body(self, body: bytes) -> None:
        if not self._has_all:
            self._pieces.append(body)
            self._waiting += len(body)

    def on_message_complete(self) -> None:
        if not self._is_interim:
            self._has_all = True


class _Unpacking(Protocol):
    @property
    def is_whole(self) -> bool: ...

    def unpack(self, packed: bytes) -> Iterator[bytes]: ...


class _Inflating:
    def __init__(self, window: int) -> None:
        self._inflate = zlib.decompressobj(wbits=window)
        self._begun = False

    @property
    def is_whole(self) -> bool:
        return self._inflate.eof or not self._begun

    def unpack(self, packed: bytes) -> Iterator[bytes]:
        """In pieces, however much it comes to. Raises `NetworkError`."""
        if not self._begun and self._window_is_missing(packed):
            self._inflate = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
        self._begun = True
        rest = packed
        try:
            while rest and not self._inflate.eof:
                if piece := self._inflate.decompress(rest, _PIECE):
                    yield piece
                rest = self._inflate.unconsumed_tail
        except zlib.error as error:
            raise NetworkError(f"the compressed answer can't be read: {error}") from error

    @staticmethod
    def _window_is_missing(packed: bytes) -> bool:
        """Of `deflate` without its head, as some servers write it. Neither gzip nor zlib begins
        so."""
        return packed[:1] != b"\x1f" and packed[0] & 0x0F != 8


def _unpacking(encoding: str) -> _Unpacking | None:
    """Nobody is asked to compress; some servers do so all the same. Raises `NetworkError`."""
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return _Inflating(zlib.MAX_WBITS | 32)  # whichever of the two it is
        case other:
            raise NetworkError(f"the answer is compressed as {other[:40]!r}, for no reason")
