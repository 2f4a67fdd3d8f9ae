"""A TCP proxy in front of a Redis that breaks connections as networks, balancers and failovers do.

Clients connect to `url`; the server knows nothing of the proxy. It can do the following:

- `reset`: RST, as from a firewall that has forgotten a connection, or a peer that was powered off;
- `half_close`: the server's side closes (FIN), the client's side is still read;
- `tear`: only a part of the next replies arrives, or nothing (although the command was executed),
  then the connection closes;
- `delay`: every reply arrives later;
- `partition` and `heal`: no byte passes and neither side is notified; bytes that are sent meanwhile
  arrive later;
- `refuse` and `admit`: new connections are refused;
- `set_target`: new connections lead to another server, as after a failover behind one address.

It runs on the event loop of its caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio.connection import SSLConnection, parse_url

from loopline.bus import tasks

_CHUNK = 65_536
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for zero seconds. Closing then sends RST instead of FIN."""


@dataclass(eq=False)
class _Link:
    """One client's connection, and the proxy's connection to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    idle: bool = True
    """Whether the last byte came from the server: then, judging by the bytes, no reply is
    awaited."""

    def reset(self) -> None:
        sock: socket.socket = self.client.get_extra_info("socket")
        with contextlib.suppress(OSError):  # the client was faster
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.end()

    def end(self) -> None:
        self.client.transport.abort()
        if self.server is not None:
            self.server.transport.abort()

    def close(self) -> None:
        """Close both ends; data written to the client is delivered first."""
        self.client.close()
        if self.server is not None:
            self.server.transport.abort()


class Proxy:
    """Proxy that listens on a free port of 127.0.0.1 from `start` (or `async with`) to `stop`."""

    def __init__(self, target: str) -> None:
        """`target` is a `redis://` or `unix://` URL; its user, password and db stay in `url`."""
        self.set_target(target)
        self.accepted = 0
        """Number of connections so far."""
        self.torn = 0
        """Number of replies that were torn so far."""
        self._port = 0
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._working: set[asyncio.Task[None]] = set()
        self._whole = asyncio.Event()
        self._whole.set()
        self._delay = 0.0
        self._to_tear = 0
        self._kept = 0.5

    @property
    def url(self) -> str:
        """URL for clients; it stays the same while the proxy lives."""
        parts = urlsplit(self._url)
        credentials = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return f"redis://{credentials}127.0.0.1:{self._port}/{self._target.get('db', 0)}"

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._links)

    async def start(self) -> None:
        await self.admit()

    async def stop(self) -> None:
        await self.refuse()
        for link in self._links:
            link.end()
        await tasks.end(self._working)

    async def __aenter__(self) -> Proxy:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- attacks ------------------------------------------------------------------------------

    def reset(self, *, idle_only: bool = False) -> int:
        """Reset connections and return their number; with `idle_only`, only those on which no reply
        is awaited: a pool keeps them, and notices only when it uses one."""
        links = list(self._choose_links(idle_only))
        for link in links:
            link.reset()
        return len(links)

    def half_close(self, *, idle_only: bool = False) -> int:
        """Half-close connections and return their number; bytes from their clients are still
        accepted."""
        links = [link for link in self._choose_links(idle_only) if not link.client.is_closing()]
        for link in links:
            with contextlib.suppress(OSError):  # the client was faster
                link.client.write_eof()
        return len(links)

    def tear(self, replies: int = 1, *, share: float = 0.5) -> None:
        """Tear this many of the next replies, on any connection: this share of each arrives (0 is
        nothing), then its connection closes."""
        self._to_tear, self._kept = replies, share

    def delay(self, seconds: float) -> None:
        """Delay every reply from now on by this many seconds; 0 turns the delay off."""
        self._delay = seconds

    def partition(self) -> None:
        self._whole.clear()

    def heal(self) -> None:
        self._whole.set()

    async def refuse(self) -> None:
        """Refuse new connections; open ones stay open."""
        if self._server is not None:
            self._server.close()
            self._server = None
            await asyncio.sleep(0)  # the loop closes the socket in its next iteration

    async def admit(self) -> None:
        """Accept connections again. Raises OSError if another program has taken the port
        meanwhile."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    def set_target(self, target: str) -> None:
        """Connect new clients to this server. Open connections are not affected."""
        where: dict[str, Any] = dict(parse_url(target))
        if where.get("connection_class") is SSLConnection:
            raise ValueError("the proxy cuts bytes, not TLS records: give it redis:// or unix://")
        self._url, self._target = target, where

    # -- work ---------------------------------------------------------------------------------

    def _choose_links(self, idle_only: bool) -> Iterator[_Link]:
        return (link for link in list(self._links) if link.idle or not idle_only)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine: asyncio would log the cancellation of its task as an error.
        link = _Link(writer)
        self._links.add(link)
        self.accepted += 1
        task = asyncio.create_task(self._serve(reader, link), name="proxied")
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _serve(self, reader: asyncio.StreamReader, link: _Link) -> None:
        pumps: list[asyncio.Task[None]] = []
        try:
            await self._whole.wait()
            from_server, link.server = await self._connect()
            pumps = [
                asyncio.create_task(self._ask(reader, link, link.server)),
                asyncio.create_task(self._answer(from_server, link)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            link.reset()  # the server is down
        finally:
            await tasks.end(pumps)
            link.close()
            self._links.discard(link)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if "path" in self._target:
            return await asyncio.open_unix_connection(self._target["path"])
        host, port = self._target.get("host", "127.0.0.1"), self._target.get("port", 6379)
        return await asyncio.open_connection(host, port)

    async def _ask(
        self, reader: asyncio.StreamReader, link: _Link, server: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # either side was closed
            while chunk := await reader.read(_CHUNK):
                link.idle = False
                await self._whole.wait()
                server.write(chunk)
                await server.drain()

    async def _answer(self, reader: asyncio.StreamReader, link: _Link) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # either side was closed
            while chunk := await reader.read(_CHUNK):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._whole.wait()
                if self._to_tear > 0:
                    self._to_tear -= 1
                    self.torn += 1
                    link.client.write(chunk[: int(len(chunk) * self._kept)])
                    return
                link.client.write(chunk)
                link.idle = True
                await link.client.drain()
