"""A server that speaks OpenEnv's protocol, with the package's published messages, and plays a game:
guess the number that the seed determines. In another mode any text is an action."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "metadata": {"type": "object", "default": {}},
        "guess": {"type": "integer", "description": "A number from 1 to 9."},
    },
    "required": ["guess"],
}


TEXTS: dict[str, Any] = {
    "type": "object",
    "properties": {"message": {"type": "string"}},
    "required": ["message"],
}


def secret_of(seed: int) -> int:
    return random.Random(seed).randint(1, 9)


@dataclass
class NumberServer:
    """Switches and counters for tests."""

    url: str = ""
    room: int = 8
    """Maximum number of concurrent sessions."""
    texts: bool = False
    """In this mode any text is an action, and its length the reward."""
    repeats: bool = True
    """Whether one seed always gives the same start."""
    open: int = 0
    sessions: int = 0
    resets: int = 0
    steps: int = 0
    transports: set[asyncio.Transport] = field(default_factory=set[asyncio.Transport])
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def drop(self) -> None:
        """Close every session abruptly, like a network failure."""
        for transport in [*self.transports]:
            self.loop.call_soon_threadsafe(transport.abort)

    async def schema(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"action": TEXTS if self.texts else SCHEMA, "observation": {}, "state": {}}
        )

    async def session(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sessions += 1
        if self.open >= self.room:
            await socket.send_json(error("no room", "CAPACITY_REACHED"))
            await socket.close()
            return socket
        self.open += 1
        transport = request.transport
        assert transport is not None
        self.transports.add(transport)
        game = Game(self)
        try:
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    break
                body = json.loads(message.data)
                if body["type"] == "close":
                    break
                await socket.send_json(game.answer(body))
        finally:
            self.open -= 1
            self.transports.discard(transport)
        await socket.close()
        return socket


@dataclass
class Game:
    """One session."""

    server: NumberServer
    secret: int = 0
    tries: int = 0

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["type"] == "reset":
            self.server.resets += 1
            self.secret, self.tries = secret_of(body["data"]["seed"]), 0
            hint = "Guess a number from 1 to 9."
            if not self.server.repeats:
                hint += f" ({self.server.resets})"
            return observation({"hint": hint}, None, done=False)
        if self.server.texts:
            self.tries += 1
            size = len(body["data"]["message"]) % 7
            return observation({"hint": f"{size} of 7"}, size / 7, done=self.tries >= 2)
        guess = body["data"].get("guess")
        if not isinstance(guess, int):
            problem = {"loc": ["guess"], "msg": "Input should be a valid integer"}
            return error("Invalid message", "VALIDATION_ERROR", errors=[problem])
        self.server.steps += 1
        self.tries += 1
        if guess == self.secret:
            return observation({"hint": "Right."}, 1.0, done=True)
        hint = "It is higher." if self.secret > guess else "It is lower."
        return observation({"hint": hint}, 0.0, done=self.tries >= 4)


def observation(hints: dict[str, Any], reward: float | None, *, done: bool) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": hints, "reward": reward, "done": done}}


def error(message: str, code: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, **more}}


@contextmanager
def number_server() -> Generator[NumberServer]:
    """It runs in its own thread, since a player blocks."""
    server, started, ending = NumberServer(), threading.Event(), asyncio.Event()
    loop = server.loop

    async def serve() -> None:
        app = web.Application()
        app.add_routes([web.get("/schema", server.schema), web.get("/ws", server.session)])
        runner = web.AppRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await ending.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert started.wait(20)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(20)
        loop.close()
