"""Real workers for the measurements of an idle bus: `python -m loopline.workers`, as deployed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator

import psutil

from loopline.bench.errors import BenchError
from loopline.bus import Bus, BusSettings, present
from loopline.workers.child_death import dies_with_parent
from loopline.workers.own_python import OWN_PYTHON
from loopline.workers.settings import WorkerSettings

START_SECONDS = 60.0


@contextlib.asynccontextmanager
async def worker(settings: WorkerSettings) -> AsyncGenerator[psutil.Process]:
    """A worker process that says that it is ready; killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *OWN_PYTHON, "-m", "loopline.workers", "-",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        preexec_fn=dies_with_parent(signal.SIGKILL),
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(settings.model_dump_json().encode())
    process.stdin.close()
    try:
        await _until_ready(settings.bus, process)
        yield psutil.Process(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _until_ready(settings: BusSettings, process: asyncio.subprocess.Process) -> None:
    async with Bus(settings) as bus:
        for _ in range(int(START_SECONDS / 0.05)):
            if any(who.pid == process.pid and who.state == "ready" for who in await present(bus)):
                return
            if process.returncode is not None:
                break
            await asyncio.sleep(0.05)
    raise BenchError("the worker process did not become ready; what it printed stands above")
