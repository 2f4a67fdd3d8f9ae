"""The worker kind `improve`: the closed loop as part of the deployment.

It runs `train improve` with the options of the profile's table `[improve]`; the rounds are in the
state folder. A killed worker resumes where it stopped; a worker that has reached its limits stays
idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import structlog

from loopline.bus import Bus, WorkerPresence, announce
from loopline.runtime import __version__
from loopline.runtime.config.sections import ImproveOption
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import EXIT_OK, EXIT_UNREACHABLE, EXIT_USAGE, ConfigError, UserError
from loopline.runtime.jobs.programs import RETRY_SECONDS, run_program, serve_through_outages
from loopline.workers.messages import METRICS_ADDRESS
from loopline.workers.stop_signals import stop_signals

KIND = "improve"

log = structlog.get_logger("loopline.runtime.jobs.improve_worker")


def run_improve_worker(settings: Settings, name: str, state: StateDirectory) -> None:
    """Serve until SIGTERM, which also interrupts a round. Raises `ConfigError` for options that the
    command does not have, and `UserError` if the command fails."""
    asyncio.run(serve_through_outages(lambda: _serve(settings, name, state)))


def command_line(output: Path, options: Mapping[str, ImproveOption]) -> list[str]:
    """Return the arguments of `train`. Option names may contain `_` or `-`, as in the profile."""
    words = [KIND, str(output)]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        match value:
            case True:
                words.append(option)
            case False:
                continue
            case list():
                words += [f"{option}={item}" for item in value]
            case _:
                words.append(f"{option}={value}")
    return words


async def _serve(settings: Settings, name: str, state: StateDirectory) -> None:
    stopped = asyncio.Event()
    details: dict[str, Any] = {}

    def describe() -> WorkerPresence:
        return WorkerPresence(
            name=name,
            kind=KIND,
            version=__version__,
            state="draining" if stopped.is_set() else "ready",
            busy=int(KIND not in details),
            concurrency=1,
            started=started,
            details=details,
        )

    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(Bus(settings.bus))
        if settings.metrics.enabled:
            from loopline.workers.metrics import ProcessMetrics

            metrics = ProcessMetrics(settings.metrics, kind=KIND, version=__version__)
            metrics.serve()
            stack.callback(metrics.close)
            details[METRICS_ADDRESS] = metrics.address
        started = bus.clock.now()
        stack.enter_context(stop_signals(lambda _: stopped.set(), lambda _: stopped.set()))
        bus.background.start(announce(bus, describe), name="presence")
        try:
            await bus.background.run(_improve(settings, state, stopped, details))
        finally:
            await bus.background.end()


async def _improve(
    settings: Settings, state: StateDirectory, stopped: asyncio.Event, details: dict[str, Any]
) -> None:
    output_log = state.logs / "train-improve.log"
    words = command_line(state.path / KIND, settings.improve)
    while not stopped.is_set():
        log.info("loop started", argv=words)
        program = asyncio.create_task(
            run_program("train", words, state.path, output_log, settings, state)
        )
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait({program, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not program.done():
            program.cancel()
            with suppress(asyncio.CancelledError):
                await program
            return
        code, last_line = program.result()
        if code == EXIT_OK:
            log.info("loop ended", why=last_line)
            details[KIND] = last_line
            await stopped.wait()
        elif code == EXIT_UNREACHABLE:
            log.warning("loop lost the bus", why=last_line, again_in=RETRY_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await stopped.wait()
        else:
            error = ConfigError if code == EXIT_USAGE else UserError
            raise error(
                f"train improve ended with exit code {code}: {last_line}", hint=f"see {output_log}"
            )
