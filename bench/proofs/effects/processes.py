"""Processes that are interrupted again and again while they work, each forked from one that has
imported everything: a fork takes only milliseconds."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType

import psutil

from loopline.bench.proofs.effects.interruption import (
    How,
    Interruption,
    Line,
    LineWatch,
    read_lines,
)
from loopline.workers.process_lifetime import tie_to_parent

LIFE_SECONDS = 2.0
"""Seconds after which a process whose line does not run is killed."""
FIRST_SECONDS = 0.3
"""Seconds after which a process that only reports its lines is killed."""
LONGEST_OCCURRENCE = 8
CALLS_OF_A_LIFE = 12
"""Average number of calls per process; an uninterrupted process would make more."""
PRELOAD = [
    "loopline.bench.proofs.effects.ours",
    "loopline.bench.proofs.effects.queue_peer",
    "loopline.bench.proofs.effects.graph_peer",
    "langgraph.graph",
    "langgraph.checkpoint.sqlite",
]
"""Modules that a fork has already imported, if they are installed."""
_LOOK_SECONDS = 0.02

Job = Callable[[LineWatch], None]
"""Work of a process until it is killed. It installs the watch."""


@dataclass
class Interruptions:
    """Interruptions that were made."""

    kills: int = 0
    stops: int = 0
    lines: int = 0
    """Distinct lines that ran."""
    attacked: int = 0
    """Lines at which a process was killed or paused at least once."""


class Crew:
    """Several processes that do the same work. Each dies or pauses at a line, and is replaced."""

    def __init__(
        self,
        job: Job,
        files: Sequence[str],
        folder: Path,
        rng: random.Random,
        *,
        size: int,
        pause_seconds: float,
    ) -> None:
        """Create a crew; `job` must be picklable, and is interrupted at lines of these `files`. A
        paused process continues after half to twice `pause_seconds`."""
        self._job = job
        self._files = files
        self._lines_file = folder / "lines"
        self._rng = rng
        self._size = size
        self._pause_seconds = pause_seconds
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)
        self._starting = asyncio.Lock()
        self.done = Interruptions()
        self.lives = 0
        """Number of processes that have ended, interrupted or not."""
        self._attacked: set[Line] = set()

    @property
    def has_attacked(self) -> bool:
        """Whether at least one process was killed and one paused."""
        return self.done.kills > 0 and self.done.stops > 0

    async def keep_pace(self, calls: int) -> None:
        """Return when enough processes were interrupted for this many `calls`."""
        while calls > CALLS_OF_A_LIFE * (self.lives + self._size):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    async def work(self, finished: asyncio.Event) -> None:
        """Interrupt processes until `finished`; then end the last ones."""
        await asyncio.gather(*(self._slot(finished) for _ in range(self._size)))
        self.done.lines = len(self._lines())
        self.done.attacked = len(self._attacked)

    async def _slot(self, finished: asyncio.Event) -> None:
        plan = self._plan()
        while not finished.is_set():
            interruption = next(plan)
            # The first start waits until the fork has imported everything.
            async with self._starting:
                process = await asyncio.to_thread(self._start, interruption)
            try:
                await self._watch(process, interruption, finished)
            finally:
                process.kill()
                process.join()
                self.lives += 1

    async def _watch(
        self, process: BaseProcess, interruption: Interruption | None, finished: asyncio.Event
    ) -> None:
        until = time.monotonic() + (LIFE_SECONDS if interruption else FIRST_SECONDS)
        while not finished.is_set():
            if not process.is_alive():
                if interruption is not None and process.exitcode == -signal.SIGKILL:
                    self._attacked.add(interruption.line)
                    self.done.kills += 1
                return
            if interruption is not None and interruption.how == "stop" and _is_stopped(process):
                self._attacked.add(interruption.line)
                self.done.stops += 1
                await asyncio.sleep(self._pause_seconds * self._rng.uniform(0.5, 2.0))
                assert process.pid is not None
                os.kill(process.pid, signal.SIGCONT)
                until = time.monotonic() + self._pause_seconds
                interruption = None
            if time.monotonic() > until:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def _plan(self) -> Iterator[Interruption | None]:
        """Yield all lines that have run so far, in random order, again and again."""
        while True:
            lines = self._lines()
            if not lines:
                yield None  # the first process: its lines are not known yet
                continue
            for line in self._rng.sample(lines, len(lines)):
                how: How = self._rng.choice(("kill", "stop"))
                yield Interruption(line, self._rng.randint(1, LONGEST_OCCURRENCE), how)

    def _lines(self) -> list[Line]:
        if not self._lines_file.exists():
            return []
        return [*dict.fromkeys(read_lines(self._lines_file.read_text()))]

    def _start(self, interruption: Interruption | None) -> BaseProcess:
        process = self._context.Process(
            target=_run,
            args=(self._job, self._files, interruption, self._lines_file, self._lines()),
            daemon=True,
        )
        process.start()
        return process


def _is_stopped(process: BaseProcess) -> bool:
    try:
        return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def _run(
    job: Job,
    files: Sequence[str],
    interruption: Interruption | None,
    lines_file: Path,
    lines: Sequence[Line],
) -> None:
    tie_to_parent(signal.SIGKILL)
    journal = os.open(lines_file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    job(LineWatch(files, interruption, journal, lines))


def files_of(modules: Sequence[ModuleType]) -> list[str]:
    """Return the files of the modules, named as in their code objects."""
    return [str(module.__file__) for module in modules]
