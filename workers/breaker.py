"""Circuit breakers: after repeated failures, an endpoint gets no requests for some time.

All workers share an endpoint's state (`loopline.bus.circuits`). For a model in this process, and
for an endpoint while Redis is down, the process uses only its own state.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from loopline.bus.circuits import PROBE_SECONDS, Circuit, Verdict
from loopline.bus.connection import OUTAGE
from loopline.bus.tasks import end

log = structlog.get_logger("loopline.workers.breaker")

FAILURES = frozenset({"unavailable", "timeout"})
"""Kinds of errors that are not caused by the request: another endpoint may answer it."""


class Breaker:
    """Circuit breaker of one endpoint, in one process."""

    def __init__(
        self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Open after `failures` consecutive failures. After `seconds`, let one request through: if
        it is answered, the breaker closes."""
        self._most = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._opened: float | None = None

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    @property
    def failures(self) -> int:
        """Number of consecutive failures."""
        return self._failures

    def allows(self) -> bool:
        """Whether a request may be sent. A caller that an open breaker admits must report the
        result."""
        if self._opened is None:
            return True
        if self._clock() - self._opened < self._seconds:
            return False
        self._opened = self._clock()  # the others wait for the result of this one
        return True

    def answered(self) -> None:
        self._failures, self._opened = 0, None

    def failed(self) -> None:
        self._failures += 1
        if self._failures >= self._most:
            self._opened = self._clock()

    def opened_elsewhere(self) -> None:
        """Open the breaker because another process has found that the endpoint fails."""
        if self._opened is None:
            self._opened = self._clock()


@dataclass
class Attempt:
    """A request that may be sent."""

    token: str
    verdict: Verdict | None
    """Verdict of the bus; None if the process decided without the bus."""
    forced: bool = False
    """Whether it is sent although the breaker is open, because no other endpoint is left."""
    outcome: str | None = None
    """Result, set by the sender: the kind of the error, empty for an answer; None if the request
    was not sent, or the result is unknown."""

    @property
    def probes(self) -> bool:
        return self.verdict is not None and self.verdict.word == "probe"


class EndpointBreaker:
    """Circuit breaker of one pool as one process sees it: shared by all workers, or local."""

    def __init__(self, pool: str, local: Breaker) -> None:
        self.circuit: Circuit | None = None
        """State that all workers share; None for a model in this process."""
        self._pool = pool
        self._local = local
        self._process = f"{socket.gethostname()}/{os.getpid()}/{time.time_ns()}"
        self._numbers = itertools.count(1)
        self._verdict: Verdict | None = None
        """Last verdict from the bus."""
        self._trouble = ""
        """Why the last attempt to ask the bus failed; empty after a success."""

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open, according to the bus's last verdict, or else to this
        process's own failures."""
        if self.is_shared and self._verdict is not None:
            return self._verdict.word != "closed"
        return self._local.is_open

    @property
    def is_shared(self) -> bool:
        """Whether all workers' requests count. Otherwise only this process's requests do: for a
        local model, or while the bus is down."""
        return self.circuit is not None and not self._trouble

    def state(self) -> dict[str, Any]:
        """State for the worker's presence; empty if there is nothing to report."""
        if not self.is_open and not self._trouble:
            return {}
        shared = self._verdict if self.is_shared else None
        failures = self._local.failures if shared is None else shared.failures
        return {"open": self.is_open, "failures": failures, "trouble": self._trouble}

    @asynccontextmanager
    async def attempt(self, *, forced: bool = False) -> AsyncGenerator[Attempt | None]:
        """Ask whether one request may be sent; yields None if not. The sender sets the attempt's
        `outcome` within the block. A probe is renewed while the block runs."""
        attempt = await self._ask(forced=forced)
        if attempt is None:
            yield None
            return
        renewing = [asyncio.create_task(self._renew(attempt))] if attempt.probes else []
        try:
            yield attempt
        finally:
            await end(renewing)
            await self._settle(attempt)

    async def _ask(self, *, forced: bool) -> Attempt | None:
        token = f"{self._process}/{next(self._numbers)}"
        verdict = await self._on_bus(lambda circuit: circuit.ask(token))
        if verdict is None:
            allowed = self._local.allows()
        else:
            allowed = verdict.word != "open"
            if not allowed:
                self._local.opened_elsewhere()
            elif verdict.word == "closed" and self._local.is_open:
                self._local.answered()
        return Attempt(token, verdict, forced=not allowed) if allowed or forced else None

    async def _renew(self, attempt: Attempt) -> None:
        while True:
            await asyncio.sleep(PROBE_SECONDS / 4)
            await self._on_bus(lambda circuit: circuit.renew(attempt.token))

    async def _settle(self, attempt: Attempt) -> None:
        """Report the result of a request. An answer is only reported if the endpoint had failed
        before."""
        heard = attempt.verdict
        if attempt.outcome in FAILURES:
            before = self.is_open
            self._local.failed()
            await self._on_bus(lambda circuit: circuit.failed(attempt.token))
            if self.is_open and not before:
                log.warning("breaker opened: endpoint skipped", pool=self._pool, **self.state())
        elif attempt.outcome == "":
            self._local.answered()
            if heard is not None and (heard.failures or heard.word != "closed"):
                forced = attempt.forced
                await self._on_bus(lambda circuit: circuit.answered(attempt.token, forced=forced))
                if heard.word != "closed":
                    log.info("breaker closed: endpoint answers again", pool=self._pool)
        elif attempt.probes:
            await self._on_bus(lambda circuit: circuit.release(attempt.token))

    async def _on_bus(self, operation: Callable[[Circuit], Awaitable[Verdict]]) -> Verdict | None:
        """Run an operation on the bus; None without a shared circuit or while the bus is down."""
        if self.circuit is None:
            return None
        try:
            self._verdict = await operation(self.circuit)
        except (*OUTAGE, TimeoutError) as error:
            if not self._trouble:
                log.warning(
                    "breaker is not shared", pool=self._pool, error=str(error) or "no answer",
                    effect="this worker counts only its own requests",
                )  # fmt: skip
            self._trouble = str(error) or "Redis did not answer in time"
            return None
        if self._trouble:
            self._trouble = ""
            log.info("breaker is shared again", pool=self._pool)
        return self._verdict
