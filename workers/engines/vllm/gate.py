"""Who passes to the servers: requests together, or a change of the servers alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager


class Gate:
    """For one event loop. Who wants to be alone goes first: those who are inside end their work,
    and everybody else waits before the gate until it opens again."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._turn = asyncio.Lock()
        self._inside = 0

    async def opened(self) -> None:
        """Until it is open. What follows at once, without another wait, finds it so."""
        while not self._open.is_set():
            await self._open.wait()

    @contextmanager
    def inside(self) -> Generator[None]:
        """While a request is in progress; enter right behind `opened`."""
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
        """With nobody inside, and nobody admitted until the block ends. What the block does last is
        done before anyone who waits goes on."""
        async with self._turn:
            self._open.clear()
            try:
                while self._inside:
                    self._empty.clear()
                    await self._empty.wait()
                yield
            finally:
                self._open.set()
