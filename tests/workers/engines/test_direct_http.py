"""HTTP to an endpoint, byte by byte: what servers write, when they close, what is left on the
connection."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from loopline.workers.engines.openai import direct_http
from loopline.workers.engines.openai.direct_http import DirectHttp
from loopline.workers.engines.openai.network import NetworkError

BODY = b'{"choices": []}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
Answering = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Notes what it is asked, and answers each request as it is told."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.answers: list[bytes] = []
        """The last one is said again and again."""
        self.closes = False
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
                writer.write(answer)
                await writer.drain()
                if self.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(*answers: bytes, closes: bool = False) -> AsyncGenerator[Server]:
    server = Server()
    server.answers, server.closes = list(answers), closes
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listener:
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1/chat"
        yield server


@asynccontextmanager
async def client(**headers: str) -> AsyncGenerator[DirectHttp]:
    http = DirectHttp(headers, None, 2.0)
    try:
        yield http
    finally:
        await http.aclose()


async def body_of(http: DirectHttp, url: str, body: bytes = b"{}") -> bytes:
    answer = await http.post(url, body, {"X-Id": "7"})
    try:
        return b"".join([part async for part in answer.parts()])
    finally:
        await answer.aclose()


WHOLE = b"HTTP/1.1 200 OK\r\n" + LENGTH + b"\r\n" + BODY
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5;x=y\r\n" + BODY[:5] + b"\r\n%x \r\n" % len(BODY[5:]) + BODY[5:]
    + b"\r\n0\r\nX-Trailer: 1\r\n\r\n"
)  # fmt: skip
RAW_DEFLATE = zlib.compressobj(wbits=-15)
DEFLATED = RAW_DEFLATE.compress(BODY) + RAW_DEFLATE.flush()


def packed(encoding: bytes, content: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n"
        % (encoding, len(content))
    ) + content


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE,
        CHUNKED,
        b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n" + WHOLE,
        WHOLE.replace(b"\r\n", b"\n", 2),
        packed(b"gzip", gzip.compress(BODY)),
        packed(b"deflate", zlib.compress(BODY)),
        packed(b"deflate", DEFLATED),
        packed(b"Identity", BODY),
    ],
    ids=["length", "chunks", "interim", "bare-lf", "gzip", "zlib", "raw-deflate", "identity"],
)
async def test_one_connection_serves_request_after_request(answer: bytes) -> None:
    async with serving(answer) as server, client(Authorization="Bearer k") as http:
        for _ in range(3):
            assert await body_of(http, server.url) == BODY
        assert server.connections == 1
        first = server.requests[0]
        assert first.startswith(b"POST /v1/chat HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\nAuthorization: Bearer k\r\n" in first
        assert b"\r\nX-Id: 7\r\nContent-Length: 2\r\n\r\n{}" in first


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\n" + BODY,
        b"HTTP/1.0 200 OK\r\n" + LENGTH + b"\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + LENGTH + b"\r\n" + BODY,
    ],
    ids=["to-the-end", "http-1.0", "close"],
)
async def test_a_connection_that_ends_with_its_answer_is_not_used_again(answer: bytes) -> None:
    async with serving(answer, closes=True) as server, client() as http:
        assert [await body_of(http, server.url) for _ in range(2)] == [BODY, BODY]
        assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed the connection before its answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + BODY, "before its end"),
        (CHUNKED[:-20], "before its end"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not an answer of HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000, "the answer's head has more than"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "protocol"),
        (packed(b"br", b"x"), "compressed as 'br'"),
        (packed(b"gzip", b"x" * 50), "can't be read"),
        (packed(b"gzip", gzip.compress(BODY, mtime=0)[:-9]), "within its compressed body"),
    ],
    ids=["nothing", "short", "no-last-chunk", "ssh", "head", "upgrade", "br", "rubbish", "cut"],
)
async def test_what_is_no_whole_answer_is_an_error_of_the_network(answer: bytes, why: str) -> None:
    async with serving(answer, closes=True) as server, client() as http:
        with pytest.raises(NetworkError, match=why) as failure:
            await asyncio.wait_for(body_of(http, server.url), 5)
        assert not failure.value.never_sent


async def test_bytes_behind_an_answer_are_no_answer_to_the_next_request() -> None:
    late = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"
    async with serving(WHOLE + late, WHOLE) as server, client() as http:
        assert [await body_of(http, server.url) for _ in range(2)] == [BODY, BODY]
        assert server.connections == 2


async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used() -> None:
    async with serving(WHOLE, closes=True) as server, client() as http:
        assert await body_of(http, server.url) == BODY
        await asyncio.sleep(0.05)
        assert await body_of(http, server.url) == BODY
        assert server.connections == 2


async def test_idle_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_http, "IDLE_SECONDS", 0.05)
    async with serving(WHOLE) as server, client() as http:
        for _ in range(2):
            assert await body_of(http, server.url) == BODY
            await asyncio.sleep(0.15)
        assert server.connections == 2


async def test_an_answer_that_is_left_takes_its_connection_along() -> None:
    async with serving(CHUNKED[:-10], WHOLE) as server, client() as http:
        answer = await http.post(server.url, b"{}", {})
        assert answer.status == 200
        await answer.aclose()
        assert await body_of(http, server.url) == BODY
        assert server.connections == 2


async def test_a_request_that_is_cancelled_closes_its_connection() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\n", WHOLE) as server, client() as http:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(http.post(server.url, b"{}", {}), 0.1)
        assert await body_of(http, server.url) == BODY
        assert server.connections == 2


async def test_an_answer_that_nobody_reads_does_not_fill_the_memory() -> None:
    large = b"z" * 30_000_000
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(large) + large
    async with serving(answer) as server, client() as http:
        reading = await http.post(server.url, b"{}", {})
        await asyncio.sleep(0.2)
        assert reading._line._waiting < 3_000_000  # pyright: ignore[reportPrivateUsage]
        size = 0
        async for part in reading.parts():
            size += len(part)
        await reading.aclose()
        assert size == len(large)


async def test_what_is_unpacked_comes_in_pieces() -> None:
    zeros = gzip.compress(b"\0" * 50_000_000)
    async with serving(packed(b"gzip", zeros)) as server, client() as http:
        answer = await http.post(server.url, b"{}", {})
        sizes = [len(part) async for part in answer.parts()]
        await answer.aclose()
        assert sum(sizes) == 50_000_000
        assert max(sizes) <= 1_048_576


async def test_nobody_listening_is_known_never_to_have_been_asked() -> None:
    async with client() as http:
        with pytest.raises(NetworkError, match=r"cannot connect to 127\.0\.0\.1:1") as failure:
            await http.post("http://127.0.0.1:1/v1", b"{}", {})
        assert failure.value.never_sent


async def test_a_user_in_the_address_is_told_and_a_line_in_a_header_is_not() -> None:
    async with serving(WHOLE) as server, client() as http:
        url = server.url.replace("//", "//anna:s%C3%A9same@").replace("/chat", "/ch%20at?v=a%26b")
        assert await body_of(http, url) == BODY
        assert b"\r\nAuthorization: Basic YW5uYTpzw6lzYW1l\r\n" in server.requests[0]
        assert server.requests[0].startswith(b"POST /v1/ch%20at?v=a%26b HTTP/1.1\r\n")
        with pytest.raises(ValueError, match="would be cut"):
            await http.post(server.url, b"{}", {"X-Id": "1\r\nX-Evil: 2"})
        assert len(server.requests) == 1
