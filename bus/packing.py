"""Connections and their pool, where those of redis-py's asyncio client fall short.

- It packs commands argument by argument in Python. A batch of step commits has over a thousand
  arguments: that was a third of a busy worker's processor time. Here hiredis packs, in C.
- With a socket time-out it sends under `asyncio.wait_for`, which on Python 3.11 loses a
  cancellation that arrives while the sending ends: every tenth one in a loop of commands. A lost
  one is a worker that never stops, or a handler that works on without its lease.
- Before each command its pool reads from the socket with a time-out of zero, which raises and
  catches a cancellation each time. Here the buffers are asked.
- Its blocking pool lets whoever has just given a connection back take it again before those who
  wait: with 64 callers on 32 connections, 32 waited until their time-out. Here they stand in line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import hiredis
from redis._parsers import _AsyncHiredisParser
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import DataError
from redis.exceptions import TimeoutError as RedisTimeoutError


class _OwnWrites(AbstractConnection):
    def pack_command(self, *args: Any) -> list[bytes]:
        name: str | bytes = args[0]
        words = (name.encode() if isinstance(name, str) else name).split()
        try:
            # hiredis' stub names a tuple of one element where any length is meant.
            return [hiredis.pack_command((*words, *args[1:]))]  # pyright: ignore[reportArgumentType]
        except TypeError as error:
            raise DataError(f"{name!r}: an argument is neither text, bytes nor number") from error

    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        if not self.is_connected:
            await self.connect()
        elif check_health:
            await self.check_health()
        if isinstance(command, str):
            command = command.encode()
        writer = self._writer
        assert writer is not None
        try:
            async with asyncio.timeout(self.socket_timeout):
                writer.writelines([command] if isinstance(command, bytes) else command)
                await writer.drain()
        except TimeoutError:
            await self.disconnect(nowait=True)
            raise RedisTimeoutError("time-out while writing to Redis") from None
        except OSError as error:
            await self.disconnect(nowait=True)
            raise RedisConnectionError(f"while writing to Redis: {error}") from error
        except BaseException:
            # Half a command may be on its way: nothing can follow it.
            await self.disconnect(nowait=True)
            raise

    @property
    def clean(self) -> bool:
        """Open, and with no byte that nobody has asked for."""
        reader, parser = self._reader, self._parser
        if reader is None or reader.at_eof() or reader._buffer:  # pyright: ignore
            return False
        return isinstance(parser, _AsyncHiredisParser) and not parser._reader.has_data()  # pyright: ignore


class _Tcp(_OwnWrites, Connection):
    pass


class _Tls(_OwnWrites, SSLConnection):
    pass


class _Unix(_OwnWrites, UnixDomainSocketConnection):
    pass


_PACKING: dict[type[AbstractConnection], type[AbstractConnection]] = {
    SSLConnection: _Tls,
    UnixDomainSocketConnection: _Unix,
}


class FairPool(ConnectionPool):
    """At most `max_connections`; whoever finds them all in use waits in line."""

    def __init__(self, *, max_connections: int, wait_seconds: float, **options: Any) -> None:
        super().__init__(max_connections=max_connections, **options)
        self._wait_seconds = wait_seconds
        self._places = asyncio.Semaphore(max_connections)

    async def get_connection(
        self, command_name: object = None, *keys: object, **options: object
    ) -> AbstractConnection:
        """Raises redis-py's ConnectionError if none comes free in time."""
        await self._take_place()
        try:
            connection = self.get_available_connection()
        except BaseException:
            self._places.release()
            raise
        try:
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        """A connection that the server has closed, or that holds left-over bytes, is opened anew.

        Race left open: it is closed a moment later. Then the command fails and is repeated.
        """
        if isinstance(connection, _OwnWrites) and connection.is_connected:
            if connection.clean:
                return
            await connection.disconnect()
        await connection.connect()

    async def release(self, connection: AbstractConnection) -> None:
        await super().release(connection)
        self._places.release()

    async def _take_place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
        except TimeoutError:
            raise RedisConnectionError(
                f"all {self.max_connections} connections in use for {self._wait_seconds:g} s"
            ) from None


def pool(url: str, *, max_connections: int, wait_seconds: float, **options: Any) -> FairPool:
    """From a URL; what it says goes before the options."""
    options |= parse_url(url)
    plain = options.pop("connection_class", Connection)
    return FairPool(
        connection_class=_PACKING.get(plain, _Tcp),
        max_connections=max_connections,
        wait_seconds=wait_seconds,
        **options,
    )
