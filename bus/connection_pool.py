"""Connections and a connection pool that fix shortcomings of redis-py's asyncio client.

- redis-py packs commands argument by argument in Python. A batch of step commits has over a
  thousand arguments: packing took a third of a busy worker's CPU time. Here hiredis packs, in C.
- With a socket timeout, redis-py sends under `asyncio.wait_for`, which on Python 3.11 loses a
  cancellation that arrives as the send finishes: every tenth one in a loop of commands. After a
  lost cancellation, a worker never stops, or a handler continues without its lease.
- Before each command, its pool reads from the socket with a timeout of zero, which raises and
  catches a cancellation each time. Here the buffers are checked.
- Its blocking pool lets a caller that has just returned a connection take it again before waiting
  callers: with 64 callers on 32 connections, 32 waited until their timeout. Here callers queue.
- It passes on a broken transport's exceptions unchanged (uvloop's RuntimeError "the handler is
  closed" after a reset, an assertion, a TLS error). Here a connection raises only redis-py errors,
  so the test for "Redis is unreachable" is the same everywhere: is it a `RedisError`?
- It keeps a connection to a server that is no longer the primary. Here that connection is dropped,
  with all older ones, because the address may lead to another server by now.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable
from typing import Any, cast

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
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    DataError,
    ReadOnlyError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from loopline.bus.settings import tls_options

_NOT_PRIMARY = re.compile(r"^(READONLY|UNBLOCKED|MASTERDOWN|LOADING|NOREPLICAS|CLUSTERDOWN)\b")


def is_not_primary(error: BaseException) -> bool:
    """Whether an answer comes from a server that is not, or no longer, the primary with its data: a
    replica, a server demoted while we waited, or one that is loading or has lost its replicas."""
    kinds = (ReadOnlyError, ClusterDownError, BusyLoadingError)  # including MasterDownError
    return isinstance(error, kinds) or _NOT_PRIMARY.match(str(error)) is not None


class Node:
    """The server that an address currently leads to. The pools of one process share it: what a
    command learns also applies to blocking reads, which would wait forever on a demoted server."""

    def __init__(self) -> None:
        self.generation = 0
        """Connections of an older generation are no longer used."""

    def left(self, generation: int) -> None:
        """Record that a connection of this generation was redirected."""
        if generation == self.generation:
            self.generation += 1


class OwnConnection(AbstractConnection):
    """A connection of one of this module's pools."""

    node: Node
    generation = 0

    async def connect(self) -> None:
        if self.is_connected:
            return
        self.generation = self.node.generation
        try:
            await super().connect()
        except (RedisError, MemoryError):
            await self.disconnect(nowait=True)
            raise
        except Exception as error:
            await self.disconnect(nowait=True)
            raise RedisConnectionError(f"while connecting: {_error_text(error)}") from error
        except BaseException:
            # It may be connected but not logged in yet, or use another database.
            await self.disconnect(nowait=True)
            raise

    async def disconnect(self, nowait: bool = False) -> None:
        """Close the connection. Raises nothing except a cancellation: a broken transport is closed,
        whatever it raises."""
        writer = self._writer
        try:
            await super().disconnect(nowait=nowait)
        except Exception:  # noqa: BLE001
            self._reader = self._writer = None
            if writer is not None:
                with contextlib.suppress(Exception):
                    writer.transport.abort()

    def take_over(self, protocol: asyncio.Protocol) -> asyncio.Transport:
        """Hand the transport of an open connection to a protocol, which reads from then on."""
        writer = self._writer
        assert writer is not None
        writer.transport.set_protocol(protocol)
        return cast("asyncio.Transport", writer.transport)

    def leave(self) -> None:
        """Close the connection at once; raise nothing."""
        writer = self._writer
        self._reader = self._writer = None
        if writer is not None:
            with contextlib.suppress(Exception):
                writer.transport.abort()

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().read_response(*args, **kwargs)
        except (RedisError, MemoryError) as error:
            if is_not_primary(error):
                self.node.left(self.generation)
            raise
        except Exception as error:
            await self.disconnect(nowait=True)
            raise RedisConnectionError(f"while reading from Redis: {_error_text(error)}") from error

    def pack_command(self, *args: Any) -> list[bytes]:
        name: str | bytes = args[0]
        words = (name.encode() if isinstance(name, str) else name).split()
        try:
            # hiredis' stub declares a tuple with one element where any length is meant.
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
        try:
            if writer is None:
                raise RedisConnectionError("closed by another task")
            async with asyncio.timeout(self.socket_timeout):
                writer.writelines([command] if isinstance(command, bytes) else command)
                await writer.drain()
        except TimeoutError:
            await self.disconnect(nowait=True)
            raise RedisTimeoutError("time-out while writing to Redis") from None
        except (RedisError, MemoryError):
            await self.disconnect(nowait=True)
            raise
        except Exception as error:
            await self.disconnect(nowait=True)
            raise RedisConnectionError(f"while writing to Redis: {_error_text(error)}") from error
        except BaseException:
            # Half a command may have been sent: nothing can follow it.
            await self.disconnect(nowait=True)
            raise

    @property
    def clean(self) -> bool:
        """Whether the connection is open, leads to the current server of its address, and has no
        unread bytes."""
        reader, writer, parser = self._reader, self._writer, self._parser
        if reader is None or writer is None or self.generation != self.node.generation:
            return False
        # After a reset the stream has not ended: it has failed, and its transport is closing.
        if writer.is_closing() or reader.exception() is not None:
            return False
        if reader.at_eof() or reader._buffer:  # pyright: ignore
            return False
        return isinstance(parser, _AsyncHiredisParser) and not parser._reader.has_data()  # pyright: ignore


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


class _Tcp(OwnConnection, Connection):
    pass


class _Tls(OwnConnection, SSLConnection):
    pass


class _Unix(OwnConnection, UnixDomainSocketConnection):
    pass


_PACKING: dict[type[AbstractConnection], type[AbstractConnection]] = {
    SSLConnection: _Tls,
    UnixDomainSocketConnection: _Unix,
}


class FairPool(ConnectionPool):
    """Pool of at most `max_connections`; callers queue when all are in use."""

    def __init__(
        self, *, max_connections: int, wait_seconds: float, node: Node | None = None, **options: Any
    ) -> None:
        super().__init__(max_connections=max_connections, **options)
        self._node = node or Node()
        self._wait_seconds = wait_seconds
        self._places = asyncio.Semaphore(max_connections)

    async def get_connection(
        self, command_name: object = None, *keys: object, **options: object
    ) -> AbstractConnection:
        """Take a connection. Raises redis-py's ConnectionError if none becomes free in time."""
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
        """Reopen a connection that was closed or reset, that has unread bytes, or that was opened
        before the address was found to lead elsewhere.

        Remaining race: the connection is closed a moment later. Then the command fails and is
        repeated.
        """
        if isinstance(connection, OwnConnection) and connection.is_connected:
            if connection.clean:
                return
            await connection.disconnect(nowait=True)
        await connection.connect()

    def make_connection(self) -> AbstractConnection:
        connection = super().make_connection()
        assert isinstance(connection, OwnConnection)
        connection.node = self._node
        return connection

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


def pool(
    url: str, *, max_connections: int, wait_seconds: float, node: Node | None = None, **options: Any
) -> FairPool:
    """Make a pool from a URL, whose options override the other arguments."""
    options |= {**tls_options(url), **parse_url(url)}
    plain = options.pop("connection_class", Connection)
    return FairPool(
        connection_class=_PACKING.get(plain, _Tcp),
        max_connections=max_connections,
        wait_seconds=wait_seconds,
        node=node,
        **options,
    )
