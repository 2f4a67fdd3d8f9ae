"""The sandbox as it is used: programs in, results out, with interpreters waiting for them.

An interpreter takes about 0.05 s of CPU to come up in its sandbox, which is longer than most
programs run. So some always wait; each is used once, and its replacement is started when it is
taken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import structlog

from loopline.workers.sandbox.bubblewrap import Bubblewrap
from loopline.workers.sandbox.limits import Limits, SandboxSettings
from loopline.workers.sandbox.process import SandboxProcess
from loopline.workers.sandbox.result import Result, SandboxUnavailable

_FAILURES = 3
"""Interpreters that may fail to come up one after another, alongside those that waited."""

log = structlog.get_logger("loopline.workers.sandbox")


class Sandbox:
    """Runs programs, several at once. A context, to be used from one event loop.

    The programs die with this process, however it ends; to be exact with the thread that started
    them, as the kernel counts (`prctl(2)`, PR_SET_PDEATHSIG).
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        settings: SandboxSettings | None = None,
        hidden: Iterable[Path] = (),
    ) -> None:
        """`limits` instead of those of the settings; `hidden` folders are empty for programs, or
        not there. Raises SandboxUnavailable, unless the settings say `unsafe_exec`; OSError where
        a folder that must be there to be hidden can't be made."""
        settings = settings or SandboxSettings()
        self._settings = settings
        self._limits = limits or settings.limits
        self._bubblewrap = (
            None if settings.unsafe_exec else Bubblewrap(self._limits.disk_bytes, hidden)
        )
        self._running = asyncio.Semaphore(settings.parallel)
        self._starting: deque[asyncio.Task[SandboxProcess]] = deque()
        self._discarded: set[asyncio.Task[None]] = set()
        self._open = False

    async def __aenter__(self) -> Self:
        """Raises SandboxUnavailable when bubblewrap does not work here."""
        if self._bubblewrap is None:
            log.warning("unsafe_exec: generated programs run without isolation")
        else:
            await asyncio.to_thread(self._bubblewrap.check)
        self._open = True
        for _ in range(self._settings.ready):
            self._start_one()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        waiting, self._starting = self._starting, deque()
        # A start that is broken off would leave a process that nobody knows.
        await asyncio.gather(*map(_discard, waiting), *self._discarded)

    @property
    def limits(self) -> Limits:
        """Limits of a program that brings no limits of its own."""
        return self._limits

    @property
    def parallel(self) -> int:
        """Programs that run at once."""
        return self._settings.parallel

    @property
    def time_factor(self) -> float:
        """What problems' own time limits are stretched by."""
        return self._settings.time_factor

    @property
    def waiting(self) -> int:
        """Interpreters that are ready for a program."""
        ready = (start for start in self._starting if start.done() and not start.cancelled())
        return sum(not start.exception() and start.result().alive for start in ready)

    async def run(
        self, program: str, *, preamble: str = "", stdin: str = "", limits: Limits | None = None
    ) -> Result:
        """Run a program as `__main__` with that standard input, in an interpreter of its own, and
        with the names of a preamble that runs before it.

        Whatever the program does is in the result. Raises ValueError for one that is too long or
        asks for more disk than the sandbox was made with, SandboxUnavailable when no interpreter
        comes up.
        """
        job = {"kind": "program", "source": program, "preamble": preamble}
        async with self.process(job, limits, stdin=stdin) as process:
            return await process.finish()

    @contextlib.asynccontextmanager
    async def process(
        self,
        job: Mapping[str, Any],
        limits: Limits | None = None,
        *,
        stdin: str | None = None,
        beside: bool = False,
    ) -> AsyncGenerator[SandboxProcess]:
        """An interpreter that was given a job (see `inside`), to talk with. Raises as `run`.

        `alongside` another that the caller holds: it does not count among those that run at once,
        as two callers who wait for their second would wait for each other.
        """
        job_limits = limits or self._limits
        if job_limits.disk_bytes > self._limits.disk_bytes:
            raise ValueError(
                f"limits.disk_bytes is {job_limits.disk_bytes:,}, and the sandbox was made with "
                f"{self._limits.disk_bytes:,}: make it with more"
            )
        async with contextlib.nullcontext() if beside else self._running:
            process = await self._take()
            try:
                process.give(job, job_limits, stdin)
                yield process
            finally:
                await process.end()

    async def _take(self) -> SandboxProcess:
        """An interpreter that lives. One that waited, or came up, may have been killed: by the
        kernel for want of memory, or by a user; several in a row are not an accident."""
        failures = 0
        while self._open:
            # It is out of the row before it is awaited, so that nobody else gets it.
            start = self._starting.popleft()
            self._start_one()
            try:
                process = await asyncio.shield(start)
            except asyncio.CancelledError:
                # Its replacement is in the row: put back, it would make that longer for good.
                discarding = asyncio.create_task(_discard(start))
                self._discarded.add(discarding)
                discarding.add_done_callback(self._discarded.discard)
                raise
            except SandboxUnavailable:
                failures += 1
                if failures > self._settings.ready + _FAILURES:
                    raise
                continue
            if process.alive:
                return process
            await process.end()
        raise SandboxUnavailable("the sandbox is closed: use it inside `async with`")

    def _start_one(self) -> None:
        self._starting.append(asyncio.create_task(SandboxProcess.start(self._bubblewrap)))


async def _discard(start: asyncio.Task[SandboxProcess]) -> None:
    """End an interpreter that nobody wants, once it is there."""
    (started,) = await asyncio.gather(start, return_exceptions=True)
    if isinstance(started, SandboxProcess):
        await started.end()
