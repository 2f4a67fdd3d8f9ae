"""Finds a server for each request, and retries failures that may be temporary."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from loopline.workers.engines.openai.errors import Refused
from loopline.workers.engines.openai.retry import RetryPolicy
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.adapters import ServedAdapter, ServedModel, ServedWeights
from loopline.workers.engines.vllm.fleet import Fleet, NoServer
from loopline.workers.engines.vllm.managed import ManagedServer
from loopline.workers.engines.vllm.server import AdapterForgotten, Server

log = structlog.get_logger("loopline.workers.engines.vllm")

T = TypeVar("T")
_POLL_SECONDS = 0.1


class Dispatch:
    """See the module docstring. `process` is the server that this worker started itself, if any."""

    def __init__(
        self, settings: ModelSettings, fleet: Fleet, process: ManagedServer | None
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._process = process
        self._policy = RetryPolicy(
            settings.max_attempts, settings.backoff_seconds, settings.max_backoff_seconds
        )
        self._rng = random.Random()

    async def ask(
        self,
        prompt: Sequence[int],
        target: ServedWeights | None,
        attempt: Callable[[Server, str], Awaitable[T]],
    ) -> T:
        """Return the result of `attempt`, called with a server and the model's name there. Retries
        temporary failures, as often as the settings allow."""
        fleet, failures = self._fleet, 0
        waiting: float | None = None
        while True:
            server: Server | None = None
            timed_out = False
            try:
                async with asyncio.timeout(self._settings.timeout_seconds):
                    server = await fleet.choose(prompt, prefixes_of(target))
                    await server.ensure_model(target if isinstance(target, ServedModel) else None)
                    if isinstance(target, ServedAdapter):
                        await server.ensure(target)
                        return await attempt(server, target.name)
                    return await attempt(server, server.model)
            except NoServer:
                # Waiting for a server to restart takes time, but uses up no attempt.
                now = time.monotonic()
                waiting = now if waiting is None else waiting
                if self._process is None and now - waiting > self._settings.timeout_seconds:
                    raise
                await self._wait_for_server()
                continue
            except EngineError as error:
                failure = error
            except TimeoutError:
                timed_out = True
                failure = EngineError(
                    f"no complete answer within {self._settings.timeout_seconds:g} s",
                    kind="timeout",
                    retryable=True,
                )
            if not failure.retryable:
                raise failure
            if server is not None and await _is_lost(server, failure, target, timed_out=timed_out):
                fleet.lost(server, str(failure))
                if self._process is not None:
                    self._process.suspect()
            waiting = None
            failures += 1
            await self._pause(failures, failure)

    async def _pause(self, failures: int, failure: EngineError) -> None:
        """Wait for the next attempt. Raises EngineError if there is none."""
        retry_after = failure.retry_after if isinstance(failure, Refused) else None
        wait = self._policy.wait_seconds(failures, retry_after, self._rng)
        if wait is None:
            raise failure
        log.warning("asking again", failures=failures, seconds=round(wait, 2), why=str(failure))
        await asyncio.sleep(0 if isinstance(failure, AdapterForgotten) else wait)

    async def _wait_for_server(self) -> None:
        if self._process is None:
            await asyncio.sleep(_POLL_SECONDS)
            return
        await self._process.wait_ready()
        for server in self._fleet.servers:
            server.down_until = 0.0


async def _is_lost(
    server: Server, failure: EngineError, target: ServedWeights | None, *, timed_out: bool
) -> bool:
    """Whether a failure means that the server is gone, or no longer as it was when it was greeted.
    After a time-out, a server that is only slow still answers a greeting; one that hangs does
    not."""
    if timed_out:
        return not await server.greet()
    if isinstance(failure, AdapterForgotten):
        return target is None
    return not isinstance(failure, Refused) and failure.kind in ("unavailable", "timeout")


def prefixes_of(target: ServedWeights | None) -> str:
    """Key of the prompt prefixes in a server: they depend on the weights."""
    return "" if target is None else target.name
