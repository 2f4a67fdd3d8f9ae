"""An application behind a real port, in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette


class _Server(uvicorn.Server):
    """Leaves the process's signals alone, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@asynccontextmanager
async def listening(app: Starlette, port: int = 0) -> AsyncGenerator[str]:
    """The application's address, without a slash at its end."""
    place = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(
        app, log_level="error", access_log=False, ws="none", timeout_graceful_shutdown=1
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[place]))
    try:
        await server.ready.wait()
        yield f"http://127.0.0.1:{place.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
