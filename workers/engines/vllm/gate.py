"""Gate before the servers: it admits requests together, or a change of the servers alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager


class Gate:
    """Gate of one event loop. A change goes first: requests that are inside end their work, and all
    others wait before the gate until it opens again."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._turn = asyncio.Lock()
        self._inside = 0

    async def opened(self) -> None:
        """Wait until the gate is open. Code that follows without another wait finds it open."""
        while not self._open.is_set():
            await self._open.wait()

    @contextmanager
    def inside(self) -> Generator[None]:
        """Count a request as inside while it is in progress; enter right after `opened`."""
        assert self._open.is_set()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Wait until nobody is inside, and admit nobody until the block ends. The block's last
        statement is done before any waiter continues."""
        async with self._turn:
            self._open.clear()
            try:
                while self._inside:
                    self._empty.clear()
                    await self._empty.wait()
                yield
            finally:
                self._open.set()
