"""Does the arms in several processes, each with one core of its own, every arm after those that it
begins with."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from runtime.child_death import dies_with_parent
from trainers.errors import TrainingError
from trainers.grpo.demo.results import Arm
from trainers.grpo.demo.worker import EXIT_INTERRUPTED, Told

Watcher = Callable[[Arm, Told], None]

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


async def do_all(
    arms: Sequence[Arm], done: Sequence[Arm], output: Path, jobs: int, watcher: Watcher
) -> bool:
    """Do every arm, `jobs` at a time; `done` have a result. False if Ctrl-C or SIGTERM stopped it,
    with everything where it can be gone on from; a second one stops at once. Raises
    `TrainingError` for an arm that cannot be done; the others stop as by Ctrl-C."""
    queue = _Queue(arms, done)
    workers = [_Worker(output, watcher) for _ in range(min(jobs, len(arms)))]
    stopped = False

    def stop() -> None:
        nonlocal stopped
        for worker in workers:
            worker.stop(at_once=stopped)
        stopped = True
        queue.close()

    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for each in signals:
        loop.add_signal_handler(each, stop)
    try:
        tasks = [asyncio.create_task(worker.work(queue)) for worker in workers]
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


class _Queue:
    """The arms that are left, given out when what they need is done."""

    def __init__(self, arms: Sequence[Arm], done: Sequence[Arm]) -> None:
        self._left = list(arms)
        self._done = set(done)
        self._changed = asyncio.Event()

    async def take(self) -> Arm | None:
        """The first that can be begun; None when none is left."""
        while self._left:
            for arm in self._left:
                if self._done.issuperset(arm.needs):
                    self._left.remove(arm)
                    return arm
            self._changed.clear()
            await self._changed.wait()
        return None

    def finish(self, arm: Arm) -> None:
        self._done.add(arm)
        self._changed.set()

    def close(self) -> None:
        """Give out no more."""
        self._left.clear()
        self._changed.set()


class _Worker:
    """One process (see `trainers.grpo.demo.worker`) and the arm that it is at."""

    def __init__(self, output: Path, watcher: Watcher) -> None:
        self._output = output
        self._watcher = watcher
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._told = False

    async def work(self, queue: _Queue) -> None:
        """Take arms until none is left. Raises `TrainingError`."""
        if self._stopping:
            return
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "trainers.grpo.demo.worker", str(self._output),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(_THREADS, "1")},
            # Ctrl-C comes from us alone: two of them would stop a training step in its middle.
            start_new_session=True,
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )  # fmt: skip
        try:
            await self._do(process, queue)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _do(self, process: asyncio.subprocess.Process, queue: _Queue) -> None:
        assert process.stdin is not None
        while (arm := await queue.take()) is not None and not self._stopping:
            process.stdin.write(arm.model_dump_json().encode() + b"\n")
            if not await self._finished(process, arm):
                break
            queue.finish(arm)
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

    async def _finished(self, process: asyncio.subprocess.Process, arm: Arm) -> bool:
        """Watch the arm to its end; False if it was stopped before. Raises `TrainingError`."""
        assert process.stdout is not None
        where = f"{arm.name} of seed {arm.seed}"
        async for line in process.stdout:
            try:
                told = Told.model_validate_json(line)
            except ValidationError as error:
                raise TrainingError(f"{where}: its process wrote {line[:200]!r}") from error
            if told.event == "failed":
                raise TrainingError(f"{where}: {told.said}")
            self._told = True
            self._watcher(arm, told)
            if told.event == "finished":
                return True
        if self._stopping:
            return False
        raise _died(await process.wait(), where)


def _died(code: int, where: str = "") -> TrainingError:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return TrainingError(
        f"{f'{where}: ' if where else ''}the process {how}; what it printed stands above. Go on "
        "with the same command"
    )
