"""Requests on their way to an endpoint: bytes out, an answer's head and then its bytes in.

Endpoints that are reached directly are asked by `direct_http`. Behind a proxy it is httpx2, which
knows SOCKS, and TLS within TLS on every event loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import urlsplit

import httpx2

from loopline.workers.engines.openai.direct_http import DirectHttp
from loopline.workers.engines.openai.network import IDLE_SECONDS, NetworkError, error_text


class Answer(Protocol):
    """The head of an answer; its body comes by `parts`. To be closed."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """By names in small letters."""
        ...

    def parts(self) -> AsyncIterator[bytes]:
        """The body as it arrives, unpacked. Raises `NetworkError`."""
        ...

    async def aclose(self) -> None: ...


class Transport(Protocol):
    """Connections to one endpoint. Follows no redirect, keeps no cookie, and reads nothing of the
    environment but the certificates that it names."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Raises `NetworkError`."""
        ...

    async def aclose(self) -> None: ...


def transport_to(
    url: str, proxy: str | None, headers: Mapping[str, str], connect_seconds: float
) -> Transport:
    """For an endpoint, through the proxy where there is one; `headers` go with each request."""
    encrypted = "https" in (urlsplit(url).scheme, urlsplit(proxy or "").scheme)
    # Certificates take a while to load, and an address without TLS leads to none.
    verify = httpx2.create_ssl_context() if encrypted else None
    if proxy is None:
        return DirectHttp(headers, verify, connect_seconds)
    return _Proxied(
        httpx2.AsyncClient(
            headers=dict(headers),
            verify=False if verify is None else verify,
            trust_env=False,
            proxy=proxy,
            timeout=httpx2.Timeout(None, connect=connect_seconds),
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=IDLE_SECONDS),
        )
    )


class _Proxied:
    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        with _httpx_errors():
            request = self._client.build_request("POST", url, content=body, headers=dict(headers))
            return _ProxiedAnswer(await self._client.send(request, stream=True))

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
        raise NetworkError(error_text(error), timed_out=timed_out, never_sent=never_sent) from error
    except RuntimeError as error:
        if "closed" not in str(error):
            raise
        # uvloop's word for a connection that the other side has reset.
        raise NetworkError(error_text(error)) from error
