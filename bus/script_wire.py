"""One connection for all scripts of a process, on which no caller waits for another's answer.

A command of redis-py's client takes a connection from the pool, writes under one timeout, waits for
the answer under another, and returns the connection. Nearly all commands of a process are scripts.
Here scripts are written one after another as they arrive, and the answers, which come in the same
order, are passed to the callers: this takes a fifth of the CPU time.

As with the pool's connections (`loopline.bus.connection_pool`), only redis-py errors are raised; a
connection that was lost or leads to a server that is not the primary is dropped, and the next
script opens another. The answer to a cancelled caller is skipped; other callers don't notice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import hiredis
from redis._parsers.base import BaseParser
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import DataError, InvalidResponse, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from loopline.bus.connection_pool import FairPool, Node, OwnConnection, is_not_primary

_MORE = object()
"""hiredis: the answer is still incomplete."""


class ScriptingRedis(Redis):
    """redis-py's client, with a separate connection for scripts."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        pool = options["connection_pool"]
        assert isinstance(pool, FairPool)
        self._wire = ScriptWire(pool)

    async def evalsha(self, sha: str, numkeys: int, *keys_and_args: Any) -> Any:  # pyright: ignore
        return await self._wire.ask("EVALSHA", sha, numkeys, *keys_and_args)

    async def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Any:  # pyright: ignore
        return await self._wire.ask("EVAL", script, numkeys, *keys_and_args)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await self._wire.close()
        await super().aclose(close_connection_pool)


class ScriptWire:
    """Opens its connection on first use, and again whenever it is lost."""

    def __init__(self, pool: FairPool) -> None:
        """The wire's connection is made like the pool's but does not belong to it."""
        self._pool = pool
        self._line: _Line | None = None
        self._opening = asyncio.Lock()
        self._closings = 0

    async def ask(self, *command: str | bytes | int | float) -> Any:
        """Redis's answer. Raises its errors, and redis-py's for a connection that failed."""
        try:
            packed = hiredis.pack_command(command)  # pyright: ignore[reportArgumentType]
        except TypeError as error:
            message = f"{command[0]!r}: an argument is neither text, bytes nor number"
            raise DataError(message) from error
        line = self._line
        if line is None or not line.usable:
            line = await self._open()
        return await line.ask(packed)

    async def _open(self) -> _Line:
        async with self._opening:
            line = self._line
            if line is not None:
                if line.usable:
                    return line
                line.retire()
            connection, closings = self._pool.make_connection(), self._closings
            assert isinstance(connection, OwnConnection)
            await connection.connect()
            if closings != self._closings:
                connection.leave()
                raise RedisConnectionError("closed while it was being opened")
            self._line = line = _Line(connection)
            return line

    async def close(self) -> None:
        self._closings += 1
        if self._line is not None:
            self._line.fail(RedisConnectionError, "closed")
            self._line = None


class _Line(asyncio.Protocol):
    """An open connection, taken over from its reader once it is logged in."""

    def __init__(self, connection: OwnConnection) -> None:
        self._node: Node = connection.node
        self._generation = connection.generation
        assert connection.socket_timeout is not None
        self._seconds: float = connection.socket_timeout
        self._connection = connection
        """Kept because its writer closes the transport when it is deleted."""
        self._transport = connection.take_over(self)
        self._answers = hiredis.Reader(
            protocolError=InvalidResponse, replyError=BaseParser.parse_error, notEnoughData=_MORE
        )
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        """Expected answers and their deadlines (the loop's clock), in the order of the commands."""
        self._timer: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        self._retired = False

    @property
    def usable(self) -> bool:
        """Whether the line is open, and leads to the current server of its address."""
        return (
            not (self._closed or self._retired or self._transport.is_closing())
            and self._generation == self._node.generation
        )

    async def ask(self, packed: bytes) -> Any:
        loop = asyncio.get_running_loop()
        if not self._room.is_set():
            await self._wait_for_room()
        if self._closed:
            raise RedisConnectionError("closed before a script was written to Redis")
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((future, loop.time() + self._seconds))
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._check_overdue)
        try:
            self._transport.write(packed)
        except Exception as error:  # noqa: BLE001 - a broken transport may raise anything
            self.fail(RedisConnectionError, f"while writing to Redis: {_text(error)}")
        return await future

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._room.wait()
        except TimeoutError:
            self.fail(RedisTimeoutError, "time-out while writing to Redis")
            raise RedisTimeoutError("time-out while writing to Redis") from None

    def retire(self) -> None:
        """Write nothing more; waiting callers still get their answers."""
        self._retired = True
        if not self._waiting:
            self.fail(RedisConnectionError, "given up")

    def fail(self, kind: type[RedisError], why: str) -> None:
        """Close, and notify all waiting callers."""
        if not self._closed:
            self._closed = True
            self._connection.leave()
        self._room.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(kind(why))

    def _check_overdue(self) -> None:
        """Check whether the oldest command is overdue: one timer serves all commands."""
        self._timer = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        left = self._waiting[0][1] - loop.time()
        if left <= 0:
            self.fail(RedisTimeoutError, f"no answer from Redis within {self._seconds:g} s")
        else:
            self._timer = loop.call_later(left, self._check_overdue)

    def data_received(self, data: bytes) -> None:
        try:
            self._answers.feed(data)
            while (answer := self._answers.gets()) is not _MORE:
                self._hand_over(answer)
        except Exception as error:  # noqa: BLE001 - rubbish, or an answer to nothing
            self.fail(RedisConnectionError, f"while reading from Redis: {_text(error)}")
        if self._retired and not self._waiting:
            self.fail(RedisConnectionError, "given up")

    def _hand_over(self, answer: Any) -> None:
        if not self._waiting:
            raise InvalidResponse("an answer without a request")
        future, _ = self._waiting.popleft()
        if not isinstance(answer, Exception):
            if not future.done():
                future.set_result(answer)
            return
        if is_not_primary(answer):
            self._node.left(self._generation)
        if not future.done():
            future.set_exception(answer)
        if isinstance(answer, RedisConnectionError):
            raise answer

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(RedisConnectionError, f"Redis closed the connection: {_text(exc)}")

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()


def _text(error: Exception | None) -> str:
    return "its end" if error is None else str(error) or type(error).__name__
