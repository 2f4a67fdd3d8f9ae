"""One worker process, kept alive: spawn, watch, restart with backoff, drain, kill.

A slot lives as long as a worker of its kind is wanted at its index; its processes come and go. Each
process has its own name on the bus: a successor must not be mistaken for the dead process that
holds leases.

Backoff doubles with each consecutive death and has jitter, so that workers that died of the same
cause (a Redis restart, a bad disk) don't restart at the same time. A worker that has lived longer
than the window starts over. The breaker gives up a worker that died too often within the window:
further restarts would only waste the machine and bury the reason in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import structlog

from loopline.runtime.config.sections import SupervisorSettings
from loopline.runtime.errors import EXIT_CONFIG
from loopline.runtime.observe.log_files import RotatingLog, last_error_line
from loopline.runtime.supervise.child_output import copy_until_dead, start_with_output
from loopline.runtime.supervise.listener import GATEWAY, LISTENER_VARIABLE, Listener
from loopline.runtime.supervise.worker_name import worker_name
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import PARENT_VARIABLE, dies_with_parent
from loopline.workers.stop_signals import ABANDON, send


@dataclass
class RestartPolicy:
    """Restart policy of one worker slot, based on its deaths."""

    settings: SupervisorSettings
    random: random.Random = field(default_factory=random.Random)
    deaths: deque[float] = field(default_factory=deque[float])
    """Times of the deaths within the window, in monotonic seconds."""

    def died(self, now: float) -> float | None:
        """Record a death; return the seconds before the restart, `None` if the worker is given up.

        pause = min(max, base · 2^(deaths−1)) · uniform(0.5, 1)
        """
        window = self.settings.crash_loop_seconds
        while self.deaths and now - self.deaths[0] > window:
            self.deaths.popleft()
        self.deaths.append(now)
        if len(self.deaths) >= self.settings.crash_loop_deaths:
            return None
        exponent = len(self.deaths) - 1
        pause = min(
            self.settings.backoff_max_seconds, self.settings.backoff_seconds * 2.0**exponent
        )
        return pause * self.random.uniform(0.5, 1.0)


log = structlog.get_logger("loopline.runtime.supervise.supervisor")

ABANDON_SECONDS = 3.0
"""Seconds that a worker has to return its work to the bus before it is killed. A kill would count
as a failure of its messages, and its leases would have to expire."""

State = Literal[
    "starting", "downloading", "ready", "silent", "backoff", "broken", "draining", "stopped"
]  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """Start parameters of this deployment's worker processes."""

    settings: SupervisorSettings
    resolved: Callable[[str], Path]
    """Returns the settings file for a kind of worker."""
    logs: Path
    command: tuple[str, ...] = (*OWN_PYTHON, "-m", "loopline.runtime")
    environment: Callable[[str], Mapping[str, str]] = lambda _: os.environ
    """Returns the environment for a kind of worker."""
    listener: Listener | None = None
    """Listening socket of the gateways; it stays open when a gateway dies."""

    def argv(self, kind: str, name: str) -> list[str]:
        resolved = str(self.resolved(kind))
        return [*self.command, "worker", kind, "--name", name, "--resolved", resolved]


@dataclass(eq=False)
class WorkerSlot:
    """One slot, from its start to its stop. `run` returns once the slot is stopped."""

    kind: str
    index: int
    launch: Launch
    state: State = "starting"
    process: asyncio.subprocess.Process | None = None
    name: str = ""
    """Name of the current process on the bus."""
    restarts: int = 0
    since: float = field(default_factory=time.time)
    """Time of the last state change in Unix seconds."""
    reason: str = ""
    """Reason why the slot is in backoff or broken."""

    def __post_init__(self) -> None:
        settings = self.launch.settings
        self._policy = RestartPolicy(settings)
        self._log = RotatingLog(
            self.launch.logs / f"{self.kind}-{self.index}.log",
            settings.log_bytes,
            settings.log_files,
        )
        self._stopping = asyncio.Event()

    @property
    def last_lines(self) -> list[str]:
        return list(self._log.last_lines)

    @property
    def settled(self) -> bool:
        """Whether the worker is ready, or will never be."""
        return self.state in ("ready", "broken", "stopped")

    def enter(self, state: State, reason: str = "") -> None:
        if state != self.state:
            self.since = time.time()
        self.state, self.reason = state, reason

    async def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    code = await self._run_process_once()
                except (OSError, subprocess.SubprocessError) as error:
                    # No memory or slot for another process: treated like a death, and as temporary.
                    log.error("worker not started", worker=self.name, error=str(error))
                    self.kill_process()
                    code = os.EX_OSERR
                if self._stopping.is_set():
                    break
                if not await self._wait_before_restart(code):
                    await self._stopping.wait()
        finally:
            self.enter("stopped")
            self._log.close()

    async def stop(self) -> None:
        """Ask the process to drain; if this takes too long, make it abandon its work."""
        self._stopping.set()
        process = self.process
        if process is None or process.returncode is not None:
            return
        self.enter("draining")
        # A suspended process can't drain: SIGCONT wakes it up to handle the signal.
        send(process, signal.SIGTERM, signal.SIGCONT)
        try:
            async with asyncio.timeout(self.launch.settings.drain_seconds):
                await process.wait()
        except TimeoutError:
            log.warning(
                "worker told to leave its work to others: it did not drain in time",
                worker=self.name,
                seconds=self.launch.settings.drain_seconds,
            )
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """Make the process abandon its work, and kill it if that takes too long."""
        self._stopping.set()
        process = self.process
        if process is None or process.returncode is not None:
            return
        send(process, ABANDON, signal.SIGCONT)
        asyncio.get_running_loop().call_later(ABANDON_SECONDS, send, process, signal.SIGKILL)

    def kill_process(self) -> None:
        """Kill the current process, if there is one; another may follow."""
        if self.process is not None:
            send(self.process, signal.SIGKILL)

    async def _run_process_once(self) -> int:
        self.enter("starting")
        self.name = worker_name(self.kind, self.index)

        def start(writing: int) -> Coroutine[Any, Any, asyncio.subprocess.Process]:
            return asyncio.create_subprocess_exec(
                *self.launch.argv(self.kind, self.name),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment(),
                pass_fds=[listener.fileno()] if (listener := self._listener()) else [],
                # Ctrl-C must only reach the supervisor, which drains the workers in order.
                start_new_session=True,
                preexec_fn=dies_with_parent(signal.SIGKILL),
            )

        process, output = await start_with_output(start)
        with output:
            self.process = process
            if self._stopping.is_set():  # `stop` came between the check and the spawn.
                send(process, signal.SIGTERM)
            return await copy_until_dead(process, output, self._log)

    def _listener(self) -> Listener | None:
        return self.launch.listener if self.kind == GATEWAY else None

    def _environment(self) -> dict[str, str]:
        environment = {**self.launch.environment(self.kind), PARENT_VARIABLE: str(os.getpid())}
        if (listener := self._listener()) is not None:
            environment[LISTENER_VARIABLE] = str(listener.fileno())
        return environment

    async def _wait_before_restart(self, code: int) -> bool:
        """Wait for the backoff; return False if the worker is `broken`."""
        how = _exit_reason(code)
        if code == EXIT_CONFIG:
            self._give_up(f"{how}: its configuration is wrong")
            return False
        pause = self._policy.died(time.monotonic())
        if pause is None:
            deaths = len(self._policy.deaths)
            window = self.launch.settings.crash_loop_seconds
            self._give_up(f"{how}: {deaths} deaths within {window:g} s")
            return False
        self.restarts += 1
        self.enter("backoff", f"{how}; starts again in {pause:.1f} s")
        log.warning("worker died", worker=self.name, how=how, again_in=round(pause, 2))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._stopping.wait()
        return not self._stopping.is_set()

    def _give_up(self, reason: str) -> None:
        self.enter("broken", reason)
        log.error(
            "worker given up",
            worker=self.name,
            reason=reason,
            log=str(self._log.path),
            last_words=last_error_line(self.last_lines),
        )


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
