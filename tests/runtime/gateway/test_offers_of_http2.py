"""Java's HTTP client offers HTTP/2 with each request: the gateway answers it in HTTP/1.1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from loopline.runtime.gateway.connections import bounded_protocol

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
BODY = b'{"model": "llm"}'
SIZED = b"POST /sized HTTP/1.1\r\nHost: x\r\n%bContent-Length: 16\r\n\r\n" % OFFER
CHUNKED = b"POST /chunked HTTP/1.1\r\nHost: x\r\n%bTransfer-Encoding: chunked\r\n\r\n" % OFFER
CHUNKS = b"6\r\n%b\r\na\r\n%b\r\n0\r\n\r\n" % (BODY[:6], BODY[6:])
EMPTY = b"GET /empty HTTP/1.1\r\nHost: x\r\n%b\r\n" % OFFER
LAST = b"POST /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nend"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the path and the body of a request."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    answer = b"<%b:%b>" % (scope["path"].encode(), body)
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    protocol = bounded_protocol(5.0)
    config = uvicorn.Config(echo, http=protocol, ws="none", lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config, state, {}), "127.0.0.1", 0
    )
    async with server:
        yield server.sockets[0].getsockname()[1]


async def answered(port: int, packets: Sequence[bytes]) -> bytes:
    """What the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for packet in packets:
        writer.write(packet)
        await writer.drain()
        await asyncio.sleep(0.02)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("packets", "answers"),
    [
        ((SIZED + BODY,), (b"</sized:%b>" % BODY,)),
        ((SIZED, BODY[:5], BODY[5:]), (b"</sized:%b>" % BODY,)),
        ((SIZED[:40], SIZED[40:] + BODY[:5], BODY[5:]), (b"</sized:%b>" % BODY,)),
        ((CHUNKED + CHUNKS,), (b"</chunked:%b>" % BODY,)),
        ((CHUNKED, CHUNKS[:9], CHUNKS[9:]), (b"</chunked:%b>" % BODY,)),
        ((EMPTY,), (b"</empty:>",)),
        ((SIZED + BODY + SIZED + BODY,), (b"</sized:%b>" % BODY, b"</sized:%b>" % BODY)),
        ((EMPTY * 300,), (b"</empty:>",) * 300),
    ],
)
async def test_an_offer_of_http2_is_ignored_and_the_connection_goes_on(
    port: int, packets: Sequence[bytes], answers: Sequence[bytes]
) -> None:
    received = await answered(port, [*packets, LAST])
    parts = [part for part in received.split(b"\r\n") if b"<" in part]
    bodies = [line[line.index(b"<") : line.rindex(b">") + 1] for line in parts]
    assert bodies == [*answers, b"</last:end>"]


async def test_a_wrong_body_after_an_offer_closes_the_connection(port: int) -> None:
    received = await answered(port, [CHUNKED + b"zz\r\n"])
    assert b"200 OK" not in received
    assert received.startswith(b"HTTP/1.1 400 ")
