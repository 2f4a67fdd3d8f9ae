"""Sends requests to an endpoint and receives the head and the bytes of answers.

Direct connections use aiohttp, whose parser is in C: a call takes a third of the processor time
that httpx2 needs. Connections through a proxy use httpx2, which supports SOCKS, and TLS within TLS
on every event loop.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp
import httpx2
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload
from yarl import URL

IDLE_SECONDS = 5.0
"""A connection that is idle for longer is closed, because servers close theirs, too."""
MAX_HEADER_BYTES = 65_536
"""Limit of one line of an answer's head."""
Headers = Callable[[], Mapping[str, str]]
"""Builds a request's headers when the request is prepared."""
_LARGE = 2**20
"""aiohttp warns about a larger body in one piece, but sends a file's part by part."""


class NetworkError(Exception):
    """The endpoint sent no answer, or only a part of one."""

    def __init__(self, message: str, *, timed_out: bool = False, never_sent: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.never_sent = never_sent
        """Whether no part of the request can have reached the endpoint."""


class Answer(Protocol):
    """The head of an answer; `parts` returns its body. The caller closes it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def parts(self) -> AsyncIterator[bytes]:
        """The body as it arrives, decompressed. Raises `NetworkError`."""
        ...

    async def whole(self, limit: int) -> bytes | None:
        """The body of an answer that is labelled as JSON and has at most `limit` bytes; None for
        any other, to be read through `parts`. Raises `NetworkError`."""
        ...

    async def aclose(self) -> None: ...


class Ready(Protocol):
    """A request that is prepared while its sender waits for permission to send it. Nothing is sent
    before `leave`."""

    async def leave(self) -> Answer:
        """Send it, once, and return the answer. Raises `NetworkError`."""
        ...

    def drop(self) -> None:
        """Drop it, unless it was sent."""
        ...


class Transport(Protocol):
    """Connections to one endpoint. Follows no redirect, keeps no cookie, and reads nothing from the
    environment except the certificates that it specifies."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a body and return the answer. Raises `NetworkError`."""
        ...

    def prepare(self, url: str, body: bytes, headers: Headers) -> Ready:
        """Start to prepare a request, in the background."""
        ...

    async def aclose(self) -> None: ...


def transport_to(
    url: str, proxy: str | None, headers: Mapping[str, str], connect_seconds: float
) -> Transport:
    """Return a transport to an endpoint, through the proxy if there is one; `headers` are added to
    each request."""
    encrypted = "https" in (urlsplit(url).scheme, urlsplit(proxy or "").scheme)
    # Loading certificates takes a while, and an address without TLS needs none: redirects to
    # another origin are not followed.
    verify = httpx2.create_ssl_context() if encrypted else False
    if proxy is not None:
        return _Proxied(
            httpx2.AsyncClient(
                headers=dict(headers),
                verify=verify,
                trust_env=False,
                proxy=proxy,
                timeout=httpx2.Timeout(None, connect=connect_seconds),
                limits=httpx2.Limits(max_connections=None, keepalive_expiry=IDLE_SECONDS),
            )
        )
    return _Direct(
        aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(
                ssl=verify, limit=0, keepalive_timeout=IDLE_SECONDS, force_close=False
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_seconds),
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )
    )


class _Direct:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        with _aiohttp_errors():
            return _DirectAnswer(
                await self.send(url, body if len(body) <= _LARGE else io.BytesIO(body), headers)
            )

    async def send(
        self, url: str, body: bytes | io.BytesIO | BytesPayload, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        """Send a body with aiohttp. Raises aiohttp's errors."""
        return await self._session.post(
            URL(url, encoded=url.isascii()), data=body, headers=headers, allow_redirects=False
        )

    def prepare(self, url: str, body: bytes, headers: Headers) -> Ready:
        return (_WaitingRequest if len(body) <= _LARGE else _LateRequest)(self, url, body, headers)

    async def aclose(self) -> None:
        await self._session.close()


class _Body(BytesPayload):
    """A body that waits for `may_leave`. Its head waits with it, because aiohttp writes both at
    once."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self.may_leave = asyncio.Event()

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        await self.may_leave.wait()
        await super().write_with_length(writer, content_length)


class _WaitingRequest:
    """An aiohttp request that has its connection and waits."""

    def __init__(self, transport: _Direct, url: str, body: bytes, headers: Headers) -> None:
        self._transport = transport
        self._whole = url, body, headers
        self._body = _Body(body)
        self._task = asyncio.create_task(self._send(), name="request held back")

    async def _send(self) -> aiohttp.ClientResponse:
        await asyncio.sleep(0)  # the sender runs first, and asks for permission
        url, _, headers = self._whole
        return await self._transport.send(url, self._body, headers())

    async def leave(self) -> Answer:
        if self._task.done():
            # Its connection was closed while it waited, so nothing was sent.
            self.drop()
            url, body, headers = self._whole
            return await self._transport.post(url, body, headers())
        self._body.may_leave.set()
        try:
            return _DirectAnswer(await self._task)
        except _AIOHTTP_ERRORS as error:
            raise _aiohttp_error(error) from error

    def drop(self) -> None:
        if self._body.may_leave.is_set():
            return
        if not self._task.done():
            self._task.cancel()
        elif not self._task.cancelled() and self._task.exception() is None:
            self._task.result().close()  # an unsolicited answer, such as 408


class _LateRequest:
    """A request that is built only when it is sent."""

    def __init__(self, transport: Transport, url: str, body: bytes, headers: Headers) -> None:
        self._transport = transport
        self._whole = url, body, headers

    async def leave(self) -> Answer:
        url, body, headers = self._whole
        return await self._transport.post(url, body, headers())

    def drop(self) -> None:
        pass


class _DirectAnswer:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def parts(self) -> AsyncGenerator[bytes]:
        with _aiohttp_errors():
            async for part in self._response.content.iter_any():
                yield part

    async def whole(self, limit: int) -> bytes | None:
        length = self._response.content_length
        if length is None or length > limit or "json" not in self._response.content_type:
            return None
        if "Content-Encoding" in self._response.headers:
            return None  # its length is not that of the decompressed body
        try:
            return await self._response.read()
        except _AIOHTTP_ERRORS as error:
            raise _aiohttp_error(error) from error

    async def aclose(self) -> None:
        """The connection can serve another request only if the whole answer was read."""
        self._response.close()


_AIOHTTP_ERRORS = (aiohttp.ClientError, OSError, RuntimeError)


def _aiohttp_error(error: Exception) -> Exception:
    if not isinstance(error, aiohttp.ClientError | OSError):
        return _closed(error)
    never_sent = isinstance(
        error,
        aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL,
    )
    return NetworkError(
        _text(error), timed_out=isinstance(error, TimeoutError), never_sent=never_sent
    )


@contextmanager
def _aiohttp_errors() -> Generator[None]:
    try:
        yield
    except _AIOHTTP_ERRORS as error:
        raise _aiohttp_error(error) from error


class _Proxied:
    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        with _httpx_errors():
            request = self._client.build_request("POST", url, content=body, headers=dict(headers))
            return _ProxiedAnswer(await self._client.send(request, stream=True))

    def prepare(self, url: str, body: bytes, headers: Headers) -> Ready:
        return _LateRequest(self, url, body, headers)

    async def aclose(self) -> None:
        await self._client.aclose()


class _ProxiedAnswer:
    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def parts(self) -> AsyncGenerator[bytes]:
        with _httpx_errors():
            async for part in self._response.aiter_bytes():
                yield part

    async def whole(self, limit: int) -> bytes | None:
        return None

    async def aclose(self) -> None:
        await self._response.aclose()


@contextmanager
def _httpx_errors() -> Generator[None]:
    try:
        yield
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError) as error:
        never_sent = isinstance(
            error,
            httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout | httpx2.ProxyError,
        )
        timed_out = isinstance(error, httpx2.TimeoutException)
        raise NetworkError(_text(error), timed_out=timed_out, never_sent=never_sent) from error
    except RuntimeError as error:
        raise _closed(error) from error


def _closed(error: Exception) -> Exception:
    """uvloop raises RuntimeError for a connection that the other side has reset."""
    return NetworkError(_text(error)) if "closed" in str(error) else error


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
