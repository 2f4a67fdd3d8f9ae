"""The servers of one pool: chooses the server for each request, and watches for dead ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import structlog

from loopline.bus.tasks import end
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.vllm.server import Server, prompt_blocks

log = structlog.get_logger("loopline.workers.engines.vllm")

SLACK = 4
"""Completions that a server may have in progress beyond the least busy server and still be chosen
for the prompts that it has read: reading a prompt again costs about as much."""
_POLL_SECONDS = 0.25


class NoServer(EngineError):
    """Currently no server of the pool answers."""

    kind = "unavailable"
    retryable = True


class Fleet:
    """See the module docstring."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = list(servers)
        self._greeting: asyncio.Task[None] | None = None

    async def wait_until_up(self, seconds: float) -> None:
        """Wait until a server answers. Raises EngineError `unavailable` (retryable) after this many
        seconds."""
        until = time.monotonic() + seconds
        while not any(await asyncio.gather(*(server.greet() for server in self.servers))):
            if time.monotonic() > until:
                names = ", ".join(server.name for server in self.servers)
                raise EngineError(
                    f"no answer from {names}: is the address right and the server up?",
                    kind="unavailable",
                    retryable=True,
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def choose(self, prompt: Sequence[int], adapter: str) -> Server:
        """Choose the server for a prompt: among the least busy ones, the one that has read most of
        it. Raises `NoServer` while none answers."""
        greeting = self._begin_greeting()
        up = [server for server in self.servers if server.is_up]
        if not up and greeting is not None:
            # Otherwise don't wait: a hanging server would delay requests that others can answer.
            await asyncio.shield(greeting)
            up = [server for server in self.servers if server.is_up]
        if not up:
            names = ", ".join(server.name for server in self.servers)
            raise NoServer(f"no answer from {names}")
        if len(up) == 1:
            return up[0]
        least = min(server.load for server in up)
        blocks = prompt_blocks(prompt, adapter)
        return max(
            (server for server in up if server.load <= least + SLACK),
            key=lambda server: (server.known_blocks(blocks), -server.load),
        )

    def _begin_greeting(self) -> asyncio.Task[None] | None:
        """Start to greet the servers that are due, unless a greeting is in progress; returns the
        task."""
        if self._greeting is None or self._greeting.done():
            now = time.monotonic()
            due = [s for s in self.servers if not s.model and now >= s.down_until]
            self._greeting = asyncio.create_task(self._greet(due), name="greeting") if due else None
        return self._greeting

    async def _greet(self, due: Sequence[Server]) -> None:
        for server, is_up in zip(
            due, await asyncio.gather(*(server.greet() for server in due)), strict=True
        ):
            if is_up:
                log.info("the server is back", server=server.name)

    def lost(self, server: Server, why: str) -> None:
        """Record that a request got no answer from the server."""
        if server.model:
            log.warning("the server stopped answering", server=server.name, why=why)
            server.lost()

    async def close(self) -> None:
        if self._greeting is not None:
            await end([self._greeting])
        await asyncio.gather(*(server.close() for server in self.servers))
