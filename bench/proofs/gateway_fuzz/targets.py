"""The targets of requests: the application in this process, and a gateway's process through its
socket."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp

from loopline.bench.proofs.gateway_fuzz.requests import FuzzRequest

LIMIT_SECONDS = 30.0
"""Seconds after which a request counts as hanging: every run of the bench ends well before that."""
CLOSED = 0
"""Number that replaces a status: the connection was closed without an answer."""
_RUN = re.compile(rb"^x-loopline-run: *([0-9a-f-]{36})\r?$", re.MULTILINE | re.IGNORECASE)
_STATUS = re.compile(rb"^HTTP/1\.1 ([2-9]\d\d)", re.MULTILINE)
"""Status of the answer, without a preceding `100 Continue`."""
_KEPT = 65_536


@dataclass(frozen=True)
class Answer:
    """Answer to a request."""

    status: int
    seconds: float
    run_id: str | None = None
    defect: str = ""
    """An error that reached the server, or a request that hangs."""


class Target(Protocol):
    """Target that answers requests."""

    async def send(self, request: FuzzRequest) -> Answer: ...


class InProcess:
    """The application itself, without a server around it."""

    def __init__(self, app: ASGIApp, source: random.Random, leaving: float = 0.02) -> None:
        """Create a target; `leaving`: share of clients that leave before their answer arrives."""
        self._app = app
        self._random = source
        self._leaving = leaving

    async def send(self, request: FuzzRequest) -> Answer:
        path, _, query = request.path.partition("?")
        scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
            "method": request.method, "path": unquote(path), "raw_path": path.encode(),
            "query_string": query.encode("latin-1", "replace"), "root_path": "",
            "headers": [(name.encode("latin-1"), value.encode("latin-1"))
                        for name, value in request.headers],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip
        body = request.body
        cut = self._random.randrange(len(body)) if body and self._random.random() < 0.1 else 0
        pieces = [piece for piece in (body[:cut], body[cut:]) if piece] or [b""]
        leaves = self._random.random() < self._leaving
        done = asyncio.Event()
        status, run_id, parts = CLOSED, None, 0

        async def receive() -> dict[str, Any]:
            if pieces:
                piece = pieces.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
            if not leaves:
                await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status, run_id, parts
            if message["type"] == "http.response.start":
                status = message["status"]
                for name, value in message["headers"]:
                    if name.lower() == b"x-loopline-run":
                        run_id = value.decode()
            parts += 1

        began, defect = time.monotonic(), ""
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await self._app(scope, receive, send)
        except TimeoutError:
            defect = f"no end after {LIMIT_SECONDS:g} s"
        except Exception as error:  # noqa: BLE001 - a defect of any kind is what is looked for
            defect = f"{type(error).__name__}: {error}"
        finally:
            done.set()
        return Answer(status, time.monotonic() - began, run_id, defect)


class Socket:
    """A gateway's process. Some requests contain bytes that no client would send."""

    def __init__(self, url: str, source: random.Random) -> None:
        where = urlsplit(url)
        assert where.hostname is not None
        self._host, self._port = where.hostname, where.port or 80
        self._random = source

    async def send(self, request: FuzzRequest) -> Answer:
        began = time.monotonic()
        data = b""
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    writer.write(self._bytes(request))
                    await writer.drain()
                    while part := await reader.read(65_536):
                        data = (data + part)[:_KEPT]
                finally:
                    writer.close()
        except TimeoutError:
            return Answer(CLOSED, LIMIT_SECONDS, None, f"no end after {LIMIT_SECONDS:g} s")
        except OSError:
            pass  # closed during the write: its earlier answers are lost
        status, run = _STATUS.search(data), _RUN.search(data)
        return Answer(
            int(status[1]) if status else CLOSED,
            time.monotonic() - began,
            run[1].decode() if run else None,
        )

    def _bytes(self, request: FuzzRequest) -> bytes:
        source, body = self._random, request.body
        lines = [f"{request.method} {request.path} HTTP/1.1", "Host: x", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in request.headers if name != "content-length"]
        head = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n"
        whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        if source.random() < 0.6:
            return whole
        match source.randrange(12):
            case 0:  # chunked and valid
                return head + b"Transfer-Encoding: chunked\r\n\r\n" + _chunk(body) + b"0\r\n\r\n"
            case 1:  # chunked and invalid
                size = source.choice((b"zz", b"-1", b"f" * 20, b"", b"1;x=" + b"y" * 5_000, b"0x5"))
                return head + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\n" + body
            case 2:
                return head + b"Transfer-Encoding: chunked\r\n\r\n" + _chunk(body)  # without an end
            case 3:  # an invalid or a wrong length
                length = source.choice((b"-1", b"x", b"9" * 30, b"1e3", b"", b"+5", b"5, 5", b"0"))
                return head + b"Content-Length: " + length + b"\r\n\r\n" + body
            case 4:
                return head + b"Content-Length: %d\r\n\r\n" % (len(body) + 10) + body
            case 5:
                return head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + body
            case 6:
                return head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + body
            case 7:  # damaged anywhere
                place = source.randrange(len(whole))
                return whole[:place] + source.randbytes(2) + whole[place + 2 :]
            case 8:
                return whole[: source.randrange(len(whole))]
            case 9:
                return whole.replace(b"\r\n", source.choice((b"\n", b"\r", b"\r\r\n")), 3)
            case 10:
                return head + b"X: " + b"y" * source.choice((100, 70_000, 300_000)) + b"\r\n\r\n"
            case _:
                version = source.choice((b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9", b"X"))
                return whole.replace(b"HTTP/1.1", version, 1) + source.randbytes(10)


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body) if body else b""
