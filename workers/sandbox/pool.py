"""The sandbox's interface: programs in, results out, with a pool of waiting interpreters.

An interpreter takes about 0.05 s of CPU to start in its sandbox, which is longer than most programs
run. So some interpreters always wait; each is used once, and its replacement starts when it is
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
"""Consecutive failed starts that are tolerated, in addition to the interpreters that waited."""

log = structlog.get_logger("loopline.workers.sandbox")


class Sandbox:
    """Runs programs, several at once. A context manager, to be used from one event loop.

    The programs die with this process, however it ends; more precisely with the thread that started
    them, by the kernel's rule (`prctl(2)`, PR_SET_PDEATHSIG).
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        settings: SandboxSettings | None = None,
        hidden: Iterable[Path] = (),
    ) -> None:
        """`limits` replace those of the settings; `hidden` folders are empty for programs, or
        missing. Raises SandboxUnavailable, unless the settings say `unsafe_exec`; OSError if a
        folder that must exist to be hidden can't be created."""
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
        """Start the interpreters. Raises SandboxUnavailable if bubblewrap does not work here."""
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
        # An interrupted start would leave an untracked process.
        await asyncio.gather(*map(_discard, waiting), *self._discarded)

    @property
    def limits(self) -> Limits:
        """Limits of a program that has no limits of its own."""
        return self._limits

    @property
    def parallel(self) -> int:
        """Number of programs that run at once."""
        return self._settings.parallel

    @property
    def time_factor(self) -> float:
        """Factor applied to the problems' own time limits."""
        return self._settings.time_factor

    @property
    def waiting(self) -> int:
        """Number of interpreters that are ready for a program."""
        ready = (start for start in self._starting if start.done() and not start.cancelled())
        return sum(not start.exception() and start.result().alive for start in ready)

    async def run(
        self, program: str, *, preamble: str = "", stdin: str = "", limits: Limits | None = None
    ) -> Result:
        """Run a program as `__main__` with this standard input, in its own interpreter, with the
        names of a preamble that runs before it.

        Whatever the program does is in the result. Raises ValueError for a program that is too long
        or asks for more disk than the sandbox has, SandboxUnavailable if no interpreter starts.
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
        second: bool = False,
    ) -> AsyncGenerator[SandboxProcess]:
        """An interpreter with a job (see `inside`), to communicate with. Raises as `run`.

        `second`: for a second interpreter of the same caller, which then does not count towards
        `parallel`: otherwise two callers that wait for their second one would wait for each
        other.
        """
        job_limits = limits or self._limits
        if job_limits.disk_bytes > self._limits.disk_bytes:
            raise ValueError(
                f"limits.disk_bytes is {job_limits.disk_bytes:,}, but the sandbox was created with "
                f"{self._limits.disk_bytes:,}: create it with more"
            )
        async with contextlib.nullcontext() if second else self._running:
            process = await self._take()
            try:
                process.give(job, job_limits, stdin)
                yield process
            finally:
                await process.end()

    async def _take(self) -> SandboxProcess:
        """A live interpreter. A waiting or newly started one may have been killed, by the kernel
        for lack of memory or by a user; several failures in a row are not an accident."""
        failures = 0
        while self._open:
            # Remove it from the queue before awaiting it, so that no other caller gets it.
            start = self._starting.popleft()
            self._start_one()
            try:
                process = await asyncio.shield(start)
            except asyncio.CancelledError:
                # Its replacement is in the queue: putting this one back would lengthen the queue.
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
    """End an unneeded interpreter once it has started."""
    (started,) = await asyncio.gather(start, return_exceptions=True)
    if isinstance(started, SandboxProcess):
        await started.end()
