"""Lets servers sleep while a training has its turn on their GPU (`loopline.workers.gpu_turns`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from loopline.bus.tasks import end
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.vllm.fleet import Fleet
from loopline.workers.engines.vllm.gate import Gate
from loopline.workers.engines.vllm.managed import ManagedServer
from loopline.workers.engines.vllm.server import Server
from loopline.workers.gpu_turns import ServerTurn

log = structlog.get_logger("loopline.workers.engines.vllm")

LOOK_SECONDS = 0.05
RETRY_SECONDS = 5.0
"""Pause after a server refused to sleep, or to wake."""


class Sleeper:
    """Puts the servers to sleep and wakes them. Requests in progress finish first; requests that
    arrive during the sleep wait at the gate."""

    def __init__(self, name: str, gate: Gate) -> None:
        """`name`: of the GPU. Raises EngineError if the GPU cannot be shared in turns."""
        self._name = name
        self._gate = gate
        try:
            self._turn = ServerTurn(name)
        except OSError as error:
            raise EngineError(f"gpu_turns = {name!r}: {error}", kind="bad_request") from error
        self._task: asyncio.Task[None] | None = None

    async def take(self) -> None:
        """Wait until the servers may use the GPU's memory; call it before a server is started."""
        # Another process gives the turn away, without any notification.
        while not self._turn.take():  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)

    def begin(self, fleet: Fleet, process: ManagedServer | None) -> None:
        """Start giving turns away."""
        self._task = asyncio.create_task(self._watch_turns(fleet, process), name="gpu-turns")

    async def close(self) -> None:
        if self._task is not None:
            await end([self._task])
        self._turn.give()

    async def _watch_turns(self, fleet: Fleet, process: ManagedServer | None) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._turn.is_wanted():
                try:
                    async with self._gate.alone():
                        await self._give_turn(fleet, process)
                except EngineError as error:
                    log.error("the servers keep their GPU", gpu=self._name, why=str(error))
                    await asyncio.sleep(RETRY_SECONDS)

    async def _give_turn(self, fleet: Fleet, process: ManagedServer | None) -> None:
        """Give the GPU's turn away. Raises EngineError while the servers are still awake. If
        cancelled, the servers stay asleep, because their GPU belongs to another process."""
        if process is not None:
            await process.wait_ready()
            process.hold()
        await asyncio.gather(*(server.greet() for server in fleet.servers if not server.is_up))
        up = [server for server in fleet.servers if server.is_up]
        try:
            await asyncio.gather(*(server.sleep() for server in up))
        except EngineError:
            await self._wake(up, process)
            raise
        log.info("the servers are asleep", gpu=self._name)
        self._turn.give()
        await self.take()
        await self._wake(up, process)
        log.info("the servers are awake", gpu=self._name)

    async def _wake(self, servers: Sequence[Server], process: ManagedServer | None) -> None:
        if process is not None:
            process.release()
        for server in servers:
            try:
                await server.wake()
            except EngineError as error:
                # It died in its sleep, or never slept: it is greeted before it gets a request
                # again.
                log.warning("a server did not wake", server=server.name, why=str(error))
                server.lost()
