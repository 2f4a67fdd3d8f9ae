"""Does the cells in several processes, each with one core of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from bench.errors import EXIT_INTERRUPTED, BenchError
from bench.glpft.plan import Cell
from bench.glpft.worker import Told
from runtime.child_death import dies_with_parent

Watcher = Callable[[Cell, Told], None]

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


async def do_all(cells: Sequence[Cell], output: Path, jobs: int, watcher: Watcher) -> bool:
    """Do every cell, `jobs` at a time; False if Ctrl-C or SIGTERM stopped it, with everything
    where it can be gone on from. A second one stops at once. Raises `BenchError` for a cell that
    cannot be done; the others stop as by Ctrl-C."""
    left = deque(cells)
    workers = [_Worker(output, watcher) for _ in range(min(jobs, len(cells)))]
    stopped = False

    def stop() -> None:
        nonlocal stopped
        for worker in workers:
            worker.stop(at_once=stopped)
        stopped = True
        left.clear()

    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for each in signals:
        loop.add_signal_handler(each, stop)
    try:
        tasks = [asyncio.create_task(worker.work(left)) for worker in workers]
        _, working = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if working and not stopped:
            stop()
        await asyncio.wait(tasks)
        errors = [error for task in tasks if (error := task.exception()) is not None]
        if errors:
            raise errors[0]
    finally:
        for each in signals:
            loop.remove_signal_handler(each)
    return not stopped


class _Worker:
    """One process (see `bench.glpft.worker`) and the cell that it is at."""

    def __init__(self, output: Path, watcher: Watcher) -> None:
        self._output = output
        self._watcher = watcher
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._told = False

    async def work(self, left: deque[Cell]) -> None:
        """Take cells until none is left. Raises `BenchError`."""
        if self._stopping:
            return
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.glpft.worker", str(self._output),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(_THREADS, "1")},
            # Ctrl-C comes from us alone: two of them would stop a training step in its middle.
            start_new_session=True,
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )  # fmt: skip
        try:
            await self._do(process, left)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _do(self, process: asyncio.subprocess.Process, left: deque[Cell]) -> None:
        assert process.stdin is not None
        while left and not self._stopping:
            cell = left.popleft()
            process.stdin.write(cell.model_dump_json().encode() + b"\n")
            if not await self._finished(process, cell):
                break
        process.stdin.close()
        code = await process.wait()
        if code not in (0, EXIT_INTERRUPTED) and not self._stopping:
            raise _died(code)

    def stop(self, *, at_once: bool) -> None:
        """Let the process save what it is at, or not even that; before its first word there is
        nothing to save."""
        self._stopping = True
        if self._process is not None and self._process.returncode is None:
            gently = self._told and not at_once
            self._process.send_signal(signal.SIGINT if gently else signal.SIGKILL)

    async def _finished(self, process: asyncio.subprocess.Process, cell: Cell) -> bool:
        """Watch the cell to its end; False if it was stopped before. Raises `BenchError`."""
        assert process.stdout is not None
        async for line in process.stdout:
            try:
                told = Told.model_validate_json(line)
            except ValidationError as error:
                raise BenchError(f"{cell.name}: its process wrote {line[:200]!r}") from error
            if told.event == "failed":
                raise BenchError(f"{cell.name}: {told.said}")
            self._told = True
            self._watcher(cell, told)
            if told.event == "finished":
                return True
        if self._stopping:
            return False
        raise _died(await process.wait(), cell.name)


def _died(code: int, where: str = "") -> BenchError:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return BenchError(
        f"{f'{where}: ' if where else ''}the process {how}; what it printed stands above. Go on "
        "with the same command"
    )
