"""Reads one HTTP answer up to a size limit."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from loopline.workers.tool_sources.content_coding import Unpacker


@dataclass(frozen=True, slots=True)
class BoundedAnswer:
    """The part of an answer that was read, decompressed."""

    status: int
    headers: httpx.Headers
    body: bytes
    cut: bool
    """Whether the answer continues after the part that was read."""


def bounded_client() -> httpx.AsyncClient:
    """A client for exact requests: no redirects, no proxies, no stored cookies."""
    return httpx.AsyncClient(
        follow_redirects=False,
        verify=httpx.create_ssl_context(),
        trust_env=False,
        timeout=None,  # each call has one deadline for the whole exchange
        headers={"Accept-Encoding": "identity", "User-Agent": "loopline"},
    )


async def read_bounded(
    http: httpx.AsyncClient, request: httpx.Request, max_bytes: int
) -> BoundedAnswer:
    """Send a request and read at most `max_bytes` of its decompressed answer. Raises
    `httpx.HTTPError`, and `BadCoding` for an answer that can't be decompressed."""
    response = await http.send(request, stream=True)
    try:
        unpacker = Unpacker(response.headers.get("content-encoding", ""))
        body = bytearray()
        async for chunk in response.aiter_raw():
            for piece in unpacker.pieces(chunk):
                body += piece
                if len(body) > max_bytes:
                    break
            if len(body) > max_bytes:
                break
        else:
            unpacker.end()
        return BoundedAnswer(
            response.status_code, response.headers, bytes(body[:max_bytes]), len(body) > max_bytes
        )
    finally:
        await response.aclose()
        http.cookies.clear()
