"""Runs a command of `bench` or `train` as a separate process on its worker's bus."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import structlog

from loopline.bus import BusUnavailable, tasks
from loopline.bus.connection import OUTAGE
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.sources import URL_VARIABLE
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.observe.log_files import LAST_LINES, RotatingLog, tail
from loopline.runtime.supervise.child_output import copy_until_dead, start_with_output
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import PARENT_VARIABLE, dies_with_parent
from loopline.workers.stop_signals import stop

log = structlog.get_logger("loopline.runtime.jobs.programs")

MODULES = {"bench": "loopline.bench.cli", "train": "loopline.trainers.cli"}
"""Programs that a worker may run; a separate process calls their `main`."""
STOP_SECONDS = 20.0
"""Seconds that a program has to stop by itself."""


RETRY_SECONDS = 2.0
"""Seconds between two attempts to reach the bus."""


async def serve_through_outages(serve: Callable[[], Awaitable[None]]) -> None:
    """Serve, and retry after outages. If Redis is down at the start, a worker under a supervisor
    waits; a worker that was started by hand reports the outage and exits."""
    while True:
        began = time.monotonic()
        try:
            await serve()
            return
        except (*OUTAGE, BusUnavailable) as error:
            if PARENT_VARIABLE not in os.environ and time.monotonic() - began < RETRY_SECONDS:
                raise
            log.warning("waiting for the bus", error=str(error), again_in=RETRY_SECONDS)
        await asyncio.sleep(RETRY_SECONDS)


async def run_program(
    program: str,
    argv: Sequence[str],
    folder: Path,
    output_log: Path,
    settings: Settings,
    state: StateDirectory,
) -> tuple[int, str]:
    """Run a program in a folder until it exits. Returns its exit code and the last line that it
    printed. If the caller is cancelled, the program is stopped. It never outlives this process."""

    def start(writing: int) -> Coroutine[Any, Any, asyncio.subprocess.Process]:
        return asyncio.create_subprocess_exec(
            *OWN_PYTHON,
            "-c",
            f"from {MODULES[program]} import main; main()",
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            env=_environment(settings, state),
            start_new_session=True,
            # SIGKILL: two programs must never write to one directory.
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )

    process, output = await start_with_output(start)
    printed = RotatingLog(output_log, settings.supervisor.log_bytes, settings.supervisor.log_files)
    with output, closing(printed):
        copying = asyncio.create_task(copy_until_dead(process, output, printed))
        try:
            code = await asyncio.shield(copying)
        except asyncio.CancelledError:
            await tasks.finish(_stop(process, copying))
            raise
    lines = [line for line in tail(output_log, LAST_LINES) if line.strip()]
    return code, lines[-1] if lines else ""


def _environment(settings: Settings, state: StateDirectory) -> dict[str, str]:
    """Return the environment that connects a program to its worker's deployment, even if the
    worker's own environment names another bus."""
    environment = {**os.environ, "LOOPLINE_STATE": str(state.path)}
    if URL_VARIABLE in environment:
        environment[URL_VARIABLE] = settings.bus.redis_url
    return environment


async def _stop(process: asyncio.subprocess.Process, copying: asyncio.Task[int]) -> None:
    """Stop the process and return once all its output is in the log."""
    await stop(process, STOP_SECONDS)
    await copying
