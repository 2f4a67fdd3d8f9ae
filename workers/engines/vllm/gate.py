"""A gate in front of the servers: many requests may be inside together, a change only alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager


class Gate:
    """Gate of one event loop. A change has priority: requests that are inside finish, and all
    others wait in front of the gate until it opens again."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._turn = asyncio.Lock()
        self._inside = 0

    async def opened(self) -> None:
        """Wait until the gate is open. It stays open for code that follows without another wait."""
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
        """Wait until no request is inside, and admit none until the block ends. The block's last
        statement runs before any waiter continues."""
        async with self._turn:
            self._open.clear()
            try:
                while self._inside:
                    self._empty.clear()
                    await self._empty.wait()
                yield
            finally:
                self._open.set()
