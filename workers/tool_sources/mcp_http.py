"""The HTTP client under an MCP connection: its answers have a limit, whatever their kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import httpx2

CONNECT_SECONDS = 30.0


def bounded_client(
    headers: Mapping[str, str], *, max_message_bytes: int, read_seconds: float
) -> httpx2.AsyncClient:
    """A client that reads at most `max_message_bytes` of an answer. Streams of events go on for
    hours and have a limit for each event instead, which the transport above holds."""
    return httpx2.AsyncClient(
        transport=_BoundedTransport(max_message_bytes),
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=read_seconds),
        trust_env=False,
    )


class _BoundedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, max_bytes: int) -> None:
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            await response.aclose()
            # A few bytes can be unpacked into gigabytes, and nobody asked for it.
            raise httpx2.StreamError(f"the server answered in the encoding {encoding[:32]!r}")
        kind = response.headers.get("content-type", "").lower()
        stream = response.stream
        if kind.startswith("text/event-stream") or not isinstance(stream, httpx2.AsyncByteStream):
            return response
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_BoundedStream(stream, self._max_bytes),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for chunk in self._inner:
            read += len(chunk)
            if read > self._max_bytes:
                raise httpx2.StreamError(f"the answer has more than {self._max_bytes} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
