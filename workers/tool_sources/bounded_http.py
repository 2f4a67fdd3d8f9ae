"""One HTTP answer, of which no more is read than was agreed on."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

CHARSETS = frozenset(
    {"us-ascii", "iso-8859-1", "iso-8859-15", "windows-1251", "windows-1252", "koi8-r", "utf-16"}
    | {"gb2312", "gbk", "gb18030", "big5", "shift_jis", "euc-jp", "euc-kr"}
)
"""Beside UTF-8. Python knows others that take minutes for a megabyte, or give no real text."""


@dataclass(frozen=True, slots=True)
class BoundedAnswer:
    """What was read of an answer."""

    status: int
    headers: httpx.Headers
    body: bytes
    cut: bool
    """There is more than was read."""
    charset: str

    @property
    def text(self) -> str:
        return self.body.decode(self.charset, "replace")


def bounded_client() -> httpx.AsyncClient:
    """A client that goes where it is told: no redirects, no proxies, no cookies kept."""
    return httpx.AsyncClient(
        follow_redirects=False,
        trust_env=False,
        timeout=None,  # each call has a deadline as a whole
        headers={"Accept-Encoding": "identity", "User-Agent": "switchyard"},
    )


async def read_bounded(
    http: httpx.AsyncClient, request: httpx.Request, max_bytes: int
) -> BoundedAnswer:
    """Send a request and read at most `max_bytes`. Raises `httpx.HTTPError`."""
    response = await http.send(request, stream=True)
    try:
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            # A few bytes can be unpacked into gigabytes, and nobody asked for it.
            raise httpx.DecodingError(f"the server answered in the encoding {encoding[:32]!r}")
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > max_bytes:
                break
        charset = (response.charset_encoding or "").lower()
        return BoundedAnswer(
            response.status_code,
            response.headers,
            bytes(body[:max_bytes]),
            len(body) > max_bytes,
            charset if charset in CHARSETS else "utf-8",
        )
    finally:
        await response.aclose()
        http.cookies.clear()
