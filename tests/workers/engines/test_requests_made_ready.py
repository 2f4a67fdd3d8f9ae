"""A request to an endpoint that is prepared while its sender waits for the permission to send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from loopline.workers.engines.openai.transport import Answer, Transport, transport_to

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
SIZES = (10, 3_000_000)
"""Bytes of a body that waits with its connection, and of one that is too large for that."""


@dataclass
class Endpoint:
    """A server that records incoming data."""

    received: bytearray = field(default_factory=bytearray)
    requests: int = 0
    silent: bool = False
    """Never answers."""
    answer: bytes = ANSWER
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.connected.set()
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.received += head + await reader.readexactly(length)
                self.requests += 1
                if not self.silent:
                    writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def endpoint() -> AsyncGenerator[tuple[Endpoint, Transport, str]]:
    """Return an endpoint, a transport to it, and its URL."""
    place = Endpoint()
    server = await asyncio.start_server(place.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    transport = transport_to(url, None, {"Content-Type": "application/json"}, 5.0)
    try:
        yield place, transport, url
    finally:
        await transport.aclose()
        server.close()
        for writer in place.writers:
            writer.close()


async def text_of(answer: Answer) -> bytes:
    return b"".join([part async for part in answer.parts()])


async def test_no_part_of_a_request_is_sent_before_its_release() -> None:
    async with endpoint() as (place, transport, url):
        ready = transport.prepare(url, b"{}", lambda: {"x-key": "mine"})
        await asyncio.wait_for(place.connected.wait(), 10)
        assert place.received == b""
        answer = await ready.leave()
        assert (answer.status, await text_of(answer)) == (200, b"ok")
        ready.drop()
        assert place.requests == 1
        assert b"x-key: mine" in place.received
        assert place.received.endswith(b"\r\n\r\n{}")


async def test_an_abandoned_request_is_never_sent() -> None:
    async with endpoint() as (place, transport, url):
        ready = transport.prepare(url, b"first", dict)
        await asyncio.wait_for(place.connected.wait(), 10)
        ready.drop()
        answer = await transport.post(url, b"second", {})
        assert await text_of(answer) == b"ok"
        assert place.requests == 1
        assert b"first" not in place.received


async def test_a_request_whose_connection_closed_while_it_waited_uses_another() -> None:
    async with endpoint() as (place, transport, url):
        ready = transport.prepare(url, b"{}", dict)
        await asyncio.wait_for(place.connected.wait(), 10)
        place.writers[0].close()
        waiting = [task for task in asyncio.all_tasks() if task.get_name() == "request held back"]
        await asyncio.wait(waiting, timeout=10)
        answer = await ready.leave()
        assert await text_of(answer) == b"ok"
        assert place.requests == 1


async def test_bodies_of_any_size_arrive_complete_and_once() -> None:
    async with endpoint() as (place, transport, url):
        for count, size in enumerate(SIZES, start=1):
            ready = transport.prepare(url, b"x" * size, dict)
            answer = await ready.leave()
            assert await text_of(answer) == b"ok"
            assert (place.requests, place.received.count(b"x" * size)) == (count, 1)
            place.received.clear()


async def test_cancelling_a_caller_cancels_its_sent_request() -> None:
    async with endpoint() as (place, transport, url):
        place.silent = True
        ready = transport.prepare(url, b"{}", dict)
        leaving = asyncio.create_task(ready.leave())
        await asyncio.wait_for(place.connected.wait(), 10)
        leaving.cancel()
        results = await asyncio.gather(leaving, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)


async def test_only_short_json_with_a_content_length_is_read_in_one_piece() -> None:
    for head, limit, whole in (
        (b"content-type: application/json\r\ncontent-length: 2", 2, b"ok"),
        (b"content-type: application/json\r\ncontent-length: 2", 1, None),
        (b"content-type: text/event-stream\r\ncontent-length: 2", 2, None),
        (b"content-type: application/json\r\nconnection: close", 2, None),
    ):
        async with endpoint() as (place, transport, url):
            place.answer = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\nok"
            answer = await transport.post(url, b"{}", {})
            assert await answer.whole(limit) == whole
            await answer.aclose()
