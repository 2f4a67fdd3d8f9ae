"""Real worker processes, `python -m loopline.workers`, as a deployment has them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import AsyncGenerator, Collection, Sequence
from pathlib import Path
from typing import Protocol

from loopline.bus import Bus, live_workers
from loopline.runtime.errors import UserError
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import dies_with_parent
from loopline.workers.settings import WorkerBase

WORKER = (*OWN_PYTHON, "-m", "loopline.workers")
"""The command of a worker, up to the path of its settings file."""
START_SECONDS = 60.0
DRAIN_SECONDS = 10.0
_LOOK_SECONDS = 0.05


class WorkerProcess(Protocol):
    """The part of `subprocess.Popen` that is needed."""

    def send_signal(self, number: int, /) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


def write_settings(settings: WorkerBase, folder: Path) -> tuple[Path, Path]:
    """Write a worker's settings to `folder/NAME.json`; return the paths of that file and of the
    worker's log, `folder/NAME.log`."""
    folder.mkdir(parents=True, exist_ok=True)
    log = _log(settings, folder)
    path = log.with_name(f"{log.stem}.json")
    # Dump before parsing: the parsed model writes secrets and paths as its parser reads them.
    body = settings.model_validate(settings.model_dump(mode="json")).model_dump_json()
    path.write_text(body)
    return path, log


def start_worker(
    settings: WorkerBase, folder: Path, command: Sequence[str] = WORKER
) -> subprocess.Popen[bytes]:
    """Start a worker, which dies with this process; its output goes to its log in `folder`.

    `command` goes before the path of the settings; it can start another program instead.
    """
    path, log = write_settings(settings, folder)
    with log.open("ab") as output:
        return subprocess.Popen(
            [*command, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )


async def wait_until_ready(
    workers: Sequence[WorkerBase],
    processes: Sequence[subprocess.Popen[bytes]],
    folder: Path,
    seconds: float = START_SECONDS,
) -> None:
    """Return when all workers have announced on the bus, which they share, that they take work.

    `processes` are the workers' processes, started by `start_worker` in `folder`. Raises
    `UserError` with the last log line of each worker that is not ready, if a process exits or the
    time is up.
    """
    waiting = dict(zip((process.pid for process in processes), workers, strict=True))
    if not waiting:
        return
    async with Bus(workers[0].bus) as bus:
        for _ in range(int(seconds / _LOOK_SECONDS)):
            for worker in await live_workers(bus):
                if worker.state == "ready":
                    waiting.pop(worker.pid, None)
            if not waiting:
                return
            if any(process.poll() is not None for process in processes):
                break
            await asyncio.sleep(_LOOK_SECONDS)
    reasons = "; ".join(_log_tail(_log(settings, folder)) for settings in waiting.values())
    raise UserError(f"worker processes did not become ready: {reasons}")


@contextlib.asynccontextmanager
async def running_workers(
    workers: Sequence[WorkerBase], folder: Path, seconds: float = START_SECONDS
) -> AsyncGenerator[list[subprocess.Popen[bytes]]]:
    """Workers of one bus that are ready, in the order of their settings, for the length of the
    block; drained at the end. Raises what `wait_until_ready` raises."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += [start_worker(settings, folder) for settings in workers]
        await wait_until_ready(workers, processes, folder, seconds)
        yield processes
    finally:
        await asyncio.to_thread(end_workers, processes)


def end_workers(processes: Collection[WorkerProcess], seconds: float = DRAIN_SECONDS) -> None:
    """Send SIGTERM to all processes, paused or not, and SIGKILL to those that have not drained
    after this many seconds."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
    for process in processes:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _log(settings: WorkerBase, folder: Path) -> Path:
    return folder / f"{settings.name or 'worker'}.log"


def _log_tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{log.stem}: {lines[-1] if lines else '(printed nothing)'}"
