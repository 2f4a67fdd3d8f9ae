"""A client with little overhead: plain HTTP/1.1 on connections that stay open."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson

from loopline.bench.errors import BenchError

_WRITTEN = re.compile(rb'"content": ?"[^"]')
"""Text of the model in a chunk; the first chunk of a stream has none."""


@dataclass
class Target:
    """An OpenAI-compatible server."""

    name: str
    url: str
    """URL in the form of `OPENAI_BASE_URL`."""
    key: str
    model: str
    _idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(
        default_factory=list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
    )

    async def call(self, prompt: str, *, stream: bool = False) -> float:
        """Send a call; return the seconds until the whole answer, or until the first text of a
        stream, which is then read to its end. Raises `BenchError` for any status other than 200."""
        began = time.perf_counter()
        reader, writer = await self._connection()
        writer.write(self._request(prompt, stream=stream))
        head = await reader.readuntil(b"\r\n\r\n")
        seconds = 0.0
        if length := re.search(rb"(?i)content-length: (\d+)", head):
            body = await reader.readexactly(int(length[1]))
        else:
            body = b""
            while part := await _chunk(reader):
                body += part
                if not seconds and _WRITTEN.search(part):
                    seconds = time.perf_counter() - began
        if not head.startswith(b"HTTP/1.1 200"):
            raise BenchError(f"{self.name} answered {head[:20]!r}: {body[:300]!r}")
        self._idle.append((reader, writer))
        return seconds if stream else time.perf_counter() - began

    async def open_stream(self, prompt: str) -> asyncio.StreamWriter:
        """Open a stream, and return its writer once its head has arrived; the caller closes it."""
        reader, writer = await self._connect()
        writer.write(self._request(prompt, stream=True))
        await reader.readuntil(b"\r\n\r\n")
        return writer

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return an idle connection that the server has not closed, or a new one."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await self._connect()

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop()[1].close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = urlsplit(self.url)
        return await asyncio.open_connection(address.hostname, address.port)

    def _request(self, prompt: str, *, stream: bool) -> bytes:
        messages = [{"role": "user", "content": prompt}]
        body = orjson.dumps({"model": self.model, "messages": messages, "stream": stream})
        address = urlsplit(self.url)
        return (
            f"POST {address.path}/chat/completions HTTP/1.1\r\nhost: {address.netloc}\r\n"
            f"authorization: Bearer {self.key}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode() + body


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    """Read one chunk of a chunked body; empty at its end."""
    size = int((await reader.readuntil(b"\r\n")).strip(), 16)
    return (await reader.readexactly(size + 2))[:-2]


async def at_rate(target: Target, rate: float, seconds: float, *, stream: bool) -> list[float]:
    """Return milliseconds of calls that start at a steady rate, whether or not others have
    finished."""
    began = time.perf_counter()
    calls: list[asyncio.Task[float]] = []
    for index in range(int(rate * seconds)):
        wait = began + index / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        calls.append(asyncio.create_task(target.call(_prompt(index), stream=stream)))
    return [1000 * latency for latency in await asyncio.gather(*calls)]


async def saturated(target: Target, callers: int, seconds: float) -> float:
    """Calls per second of this many callers, each of which sends its next call immediately."""
    until, answer_count = time.perf_counter() + seconds, 0

    async def caller(number: int) -> None:
        nonlocal answer_count
        index = 0
        while time.perf_counter() < until:
            await target.call(_prompt(number * 100_000 + index))
            index += 1
            answer_count += time.perf_counter() < until

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return answer_count / seconds


def _prompt(index: int) -> str:
    return f"What is {index} + {index % 97} * 3?"
