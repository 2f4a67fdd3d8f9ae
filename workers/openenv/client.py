"""Episodes of an OpenEnv server (https://github.com/meta-pytorch/OpenEnv), each identified by its
seed and its actions.

    WebSocket URL/ws    {"type": "reset", "data": {"seed": …}}, {"type": "step", "data": ACTION}
                        answered by {"type": "observation", "data": {observation, reward, done}}
                        or {"type": "error", "data": {message, code}}
    GET URL/schema      JSON schemas; `action` is that of ACTION

A connection has one episode at a time. (POST /reset and /step create an environment for each
request and then discard it, so they can't play an episode.) A caller may request an episode at any
state, given as a list of actions: unless the connection is already there, the actions are replayed.
Results of actions are cached. So K candidates can be tried from one state, and another process can
continue a run.

A server has room for few sessions, by default for one. An unused connection is therefore released,
and a server without room is retried for a while.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import threading
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import aiohttp

from loopline.agents.records import JsonObject

IDLE_SECONDS = 2.0
"""Time after which an idle connection is released."""
WAIT_SECONDS = 60.0
"""Longest wait for a server that does not answer or has no room."""
STEP_SECONDS = 120.0
"""Longest time of one action."""
MAX_MESSAGE_BYTES = 16 * 2**20
MAX_REMEMBERED = 4_096
"""Maximum number of cached results of actions."""
_RETRY_SECONDS = 0.25
_FULL = "CAPACITY_REACHED"
_INVALID = "VALIDATION_ERROR"
_FAILED = "EXECUTION_ERROR"

T = TypeVar("T")


class OpenEnvError(Exception):
    """The server can't be reached, or violates the protocol."""


@dataclass(frozen=True)
class Result:
    """Result of a reset, or of an action."""

    observation: JsonObject
    reward: float = 0.0
    done: bool = False
    refused: str = ""
    """Why the server refused the action."""


class _Full(Exception):
    """The server has no room for a session, or can't be reached."""


class Server:
    """One server. Its methods block. They may be called from any thread, and from within a running
    event loop, since the connection is served by a separate thread."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._schema: JsonObject | None = None
        self._results: OrderedDict[str, Result] = OrderedDict()
        self._connection: _Connection | None = None
        self._release: asyncio.TimerHandle | None = None

    def action_schema(self) -> JsonObject:
        """JSON schema of an action. Raises `OpenEnvError`."""
        with self._lock:
            if self._schema is None:
                self._schema = self._wait_for(self._read_schema())
            return self._schema

    def play(self, reset: JsonObject, actions: Sequence[JsonObject]) -> list[Result]:
        """The results of the reset and of the actions after it; actions after the end of the
        episode have none. Raises `OpenEnvError`."""
        # Without the lock, so that an event loop never blocks on a cached episode.
        results = self._remembered(reset, actions)
        if results is not None:
            return results
        with self._lock:
            results = self._wait_for(self._play(reset, actions))
            for count, result in enumerate(results):
                self._results[_key(reset, actions[:count])] = result
            while len(self._results) > MAX_REMEMBERED:
                self._results.popitem(last=False)
            return results

    def close(self) -> None:
        """Release the connection now."""
        with self._lock:
            if self._loop is not None:
                self._wait_for(self._disconnect())

    def _remembered(self, reset: JsonObject, actions: Sequence[JsonObject]) -> list[Result] | None:
        """Return cached results; None if one is missing."""
        results: list[Result] = []
        for count in range(len(actions) + 1):
            result = self._results.get(_key(reset, actions[:count]))
            if result is None:
                return None
            results.append(result)
            if result.done:
                break
        return results

    async def _play(self, reset: JsonObject, actions: Sequence[JsonObject]) -> list[Result]:
        """Retry until there is room or the time is over. An episode that was lost with its
        connection is started again."""
        if self._release is not None:
            self._release.cancel()
        loop = asyncio.get_running_loop()
        end = loop.time() + WAIT_SECONDS
        while True:
            try:
                if self._connection is None:
                    self._connection = await _Connection.open(self.url)
                results = await self._connection.play(reset, actions)
            except (_Full, aiohttp.ClientError, OSError, TimeoutError) as error:
                await self._disconnect()
                if loop.time() > end:
                    raise OpenEnvError(
                        f"the OpenEnv server at {self.url} has played no episode for "
                        f"{WAIT_SECONDS:g} seconds ({type(error).__name__}: {error}): start it, or "
                        "allow more concurrent sessions (max_concurrent_envs)"
                    ) from error
                await asyncio.sleep(_RETRY_SECONDS)
            except BaseException:
                await self._disconnect()
                raise
            else:
                self._release = loop.call_later(IDLE_SECONDS, self._release_connection)
                return results

    def _release_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            closing = asyncio.ensure_future(connection.close())
            closing.add_done_callback(lambda done: done.exception())

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _read_schema(self) -> JsonObject:
        end = asyncio.get_running_loop().time() + WAIT_SECONDS
        while True:
            try:
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(f"{self.url}/schema") as answer,
                ):
                    answer.raise_for_status()
                    schema = (await answer.json()).get("action")
            except (aiohttp.ClientConnectionError, OSError, TimeoutError) as error:
                if asyncio.get_running_loop().time() > end:
                    raise OpenEnvError(
                        f"no OpenEnv server answers at {self.url} ({error}): start it, or give "
                        "the address of another one"
                    ) from error
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            except (aiohttp.ClientError, ValueError, AttributeError) as error:
                raise OpenEnvError(
                    f"the answer from {self.url}/schema is not an OpenEnv server's ({error})"
                ) from error
            if not isinstance(schema, dict):
                raise OpenEnvError(f"{self.url}/schema contains no action schema")
            return cast(JsonObject, schema)

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            name = f"openenv {self.url}"
            atexit.register(self.close)
            threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()
        waiting: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return waiting.result()


class _Connection:
    """A session of the server, and the state of its episode."""

    def __init__(
        self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse
    ) -> None:
        self._session = session
        self._socket = socket
        self._place: tuple[str, ...] = ()
        """Keys of the reset and of the actions so far; empty before the first reset."""
        self._results: list[Result] = []

    @classmethod
    async def open(cls, url: str) -> _Connection:
        """Open a session. Raises aiohttp's errors."""
        timeout = aiohttp.ClientTimeout(total=None, connect=10.0)
        session = aiohttp.ClientSession(timeout=timeout)
        try:
            socket = await session.ws_connect(f"{url}/ws", max_msg_size=MAX_MESSAGE_BYTES)
        except BaseException:
            await session.close()
            raise
        return cls(session, socket)

    async def play(self, reset: JsonObject, actions: Sequence[JsonObject]) -> list[Result]:
        """Play as `Server.play` does. Raises `_Full` and `OpenEnvError`."""
        keys = (_text(reset), *map(_text, actions))
        if not self._place or keys[: len(self._place)] != self._place:
            self._place = ()
            result = await self._ask("reset", reset)
            if result.refused:
                raise OpenEnvError(
                    f"the server refuses the reset {keys[0][:300]}: {result.refused}"
                )
            self._place, self._results = keys[:1], [result]
        for key, action in zip(
            keys[len(self._place) :], actions[len(self._place) - 1 :], strict=True
        ):
            if self._results[-1].done:
                break
            place, self._place = self._place, ()  # unknown if this fails
            result = await self._ask("step", action)
            self._place = (*place, key)
            self._results.append(result)
        return list(self._results)

    async def _ask(self, kind: str, data: JsonObject) -> Result:
        await self._socket.send_json({"type": kind, "data": data})
        async with asyncio.timeout(STEP_SECONDS):
            answer = await self._socket.receive()
        if answer.type is not aiohttp.WSMsgType.TEXT:
            raise aiohttp.ClientConnectionError(
                f"the session ended ({answer.extra or answer.type})"
            )
        try:
            message: Any = json.loads(answer.data)
            what, body = message["type"], message["data"]
            if what == "observation":
                return Result(
                    dict(body["observation"]), float(body.get("reward") or 0.0), bool(body["done"])
                )
            code, text = str(body.get("code", "")), str(body.get("message", ""))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OpenEnvError(
                f"the server's answer does not follow the protocol ({error}): {answer.data[:300]!r}"
            ) from error
        if what == "error" and code == _FULL:
            raise _Full(text)
        if what == "error" and code in (_INVALID, _FAILED):
            return Result({}, refused=_reason(text, body.get("errors")))
        raise OpenEnvError(f"the server answered {what!r} ({code}): {text[:300]}")

    async def close(self) -> None:
        try:
            if not self._socket.closed:
                await self._socket.send_json({"type": "close"})
                await self._socket.close()
        except (aiohttp.ClientError, OSError):
            pass
        finally:
            await self._session.close()


def _reason(message: str, errors: Any) -> str:
    """The server's description of an invalid action."""
    if not isinstance(errors, list):
        return message[:1_000]
    places = [
        f"{'.'.join(map(str, entry.get('loc', ())))}: {entry.get('msg', '')}"
        for entry in cast(list[Any], errors)
        if isinstance(entry, dict)
    ]
    return "; ".join([message, *places])[:1_000]


def _key(reset: JsonObject, actions: Sequence[JsonObject]) -> str:
    return _text([reset, *actions])


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
