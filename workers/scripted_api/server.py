"""The server as an async context manager: listens while the block runs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Self

import uvicorn

from loopline.workers.scripted_api.answer import Reply
from loopline.workers.scripted_api.app import ScriptedApp, ServerOptions
from loopline.workers.scripted_api.counts import ServerCounts


class Listener(uvicorn.Server):
    """Uvicorn inside another event loop: does not touch the process's signal handlers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class ScriptedServer:
    """`async with ScriptedServer(options) as server`. Raises OSError if the port is taken."""

    def __init__(self, options: ServerOptions | None = None, reply: Reply | None = None) -> None:
        """`reply` generates the answers in place of the script."""
        self._options = options or ServerOptions()
        self._reply = reply
        self._app: ScriptedApp | None = None
        self._listener: Listener | None = None
        self._serving: asyncio.Task[None] | None = None
        self.url = ""
        """Base address for clients, ending in `/v1`."""

    @property
    def served(self) -> ServerCounts:
        """The server's counters, without a request. Raises RuntimeError before it has started."""
        if self._app is None:
            raise RuntimeError("the scripted server has not been started")
        return self._app.served

    def end_hanging(self) -> None:
        """Answer 503 to the requests that hang now."""
        if self._app is not None:
            self._app.end_hanging()

    async def __aenter__(self) -> Self:
        family = socket.AF_INET6 if ":" in self._options.host else socket.AF_INET
        listening = socket.create_server(
            (self._options.host, self._options.port), family=family, backlog=1024
        )
        host, port = listening.getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
        self._app = ScriptedApp(self._options, self._reply)
        config = uvicorn.Config(
            self._app.routes,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=2,
        )
        self._listener = Listener(config)
        self._serving = asyncio.create_task(self._listener.serve(sockets=[listening]))
        ready = asyncio.create_task(self._listener.ready.wait())
        await asyncio.wait({ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await self._serving
            raise RuntimeError("the scripted server ended before it listened")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._app is not None and self._listener is not None and self._serving is not None:
            self._app.end_hanging()
            self._listener.should_exit = True
            await self._serving
