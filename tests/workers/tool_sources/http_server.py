"""An application behind a real port, in the test's own event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette

from loopline.workers.scripted_api.server import Listener


@asynccontextmanager
async def listening(app: Starlette, port: int = 0) -> AsyncGenerator[str]:
    """The application's address, without a slash at its end."""
    place = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(
        app, log_level="error", access_log=False, ws="none", timeout_graceful_shutdown=1
    )
    server = Listener(config)
    serving = asyncio.create_task(server.serve(sockets=[place]))
    try:
        await server.ready.wait()
        yield f"http://127.0.0.1:{place.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
