"""One HTTP answer, of which no more is read than was agreed on."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from loopline.workers.tool_sources.content_coding import Unpacker


@dataclass(frozen=True, slots=True)
class BoundedAnswer:
    """What was read of an answer, unpacked."""

    status: int
    headers: httpx.Headers
    body: bytes
    cut: bool
    """Whether there is more than was read."""


def bounded_client() -> httpx.AsyncClient:
    """A client that goes where it is told: no redirects, no proxies, no cookies kept."""
    return httpx.AsyncClient(
        follow_redirects=False,
        trust_env=False,
        timeout=None,  # each call has a deadline as a whole
        headers={"Accept-Encoding": "identity", "User-Agent": "loopline"},
    )


async def read_bounded(
    http: httpx.AsyncClient, request: httpx.Request, max_bytes: int
) -> BoundedAnswer:
    """Send a request and read at most `max_bytes` of what was packed into its answer. Raises
    `httpx.HTTPError`, and `BadCoding` for an answer that can't be unpacked."""
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
