"""Run jobs, several at a time, each in its own process with one core.

A job goes to its process as a line of JSON; its progress comes back as lines of `JobLine`.
`run_jobs` is the side that hands out jobs, `serve_jobs` the side that runs them.

A process exits after its job: torch keeps compiled kernels for every shape of a training, and
memory that it has freed, so that a second training in the same process would also carry those of
the first.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from pydantic import ValidationError

from loopline.agents.records import Record
from loopline.runtime.errors import EXIT_INTERRUPTED
from loopline.trainers.errors import TrainingError
from loopline.workers.installation import require
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import dies_with_parent
from loopline.workers.stop_signals import send

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class JobLine(Record):
    """One line about the running job."""

    event: Literal["training", "playing", "finished", "failed"]
    done: int = 0
    total: int = 0
    message: str = ""


class Job(Protocol):
    """A unit of work: a pydantic model."""

    @property
    def name(self) -> str: ...

    def model_dump_json(self) -> str: ...


JobT = TypeVar("JobT", bound=Job)


def is_always_ready(job: Job) -> bool:
    """True for every job: none waits for another."""
    return True


async def run_jobs(
    jobs: Sequence[JobT],
    module: str,
    output: Path,
    processes: int,
    watcher: Callable[[JobT, JobLine], None],
    ready: Callable[[JobT], bool] = is_always_ready,
    arguments: Sequence[str] = (),
) -> bool:
    """Run all jobs, `processes` at a time, with `python -m module output arguments`. `ready`
    returns whether a job's inputs exist; it is called again when another job has finished.

    Returns False if Ctrl-C or SIGTERM stopped it, with everything saved for a resume. A second one
    stops at once. Raises `TrainingError` for a job that fails; the others stop as by Ctrl-C.
    """
    if not jobs:
        return True
    require("torch")
    queue = _Queue(jobs, ready)
    count = min(processes, len(jobs))
    command = (*OWN_PYTHON, "-m", module, str(output), *arguments)
    workers = [_Worker(command, watcher) for _ in range(count)]
    stopped = False

    def stop() -> None:
        nonlocal stopped
        for worker in workers:
            worker.stop(at_once=stopped)
        stopped = True
        queue.close()

    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for signal_number in signals:
        loop.add_signal_handler(signal_number, stop)
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
        for signal_number in signals:
            loop.remove_signal_handler(signal_number)
    return not stopped


def serve_jobs(work: Callable[[Path, str, Callable[[JobLine], None]], str]) -> None:
    """Run as one of the processes: `work(output, job, tell)` does the job that stdin contains as
    one line of JSON, and returns its result as text. After SIGINT it stops where it can be resumed.
    An error that the user can fix is reported; a defect keeps its traceback."""
    import torch

    from loopline.agents.errors import AgentError
    from loopline.runtime.errors import FixableError
    from loopline.trainers.core.memory import keep_freed_memory
    from loopline.workers.engines.protocol import EngineError

    # Output of libraries must not appear among the lines that the parent reads.
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(event: JobLine) -> None:
        lines.write(event.model_dump_json() + "\n")

    keep_freed_memory()
    torch.set_num_threads(1)
    try:
        tell(JobLine(event="finished", message=work(Path(sys.argv[1]), sys.stdin.readline(), tell)))
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except (FixableError, EngineError, AgentError) as error:
        tell(JobLine(event="failed", message=str(error)))
        raise SystemExit(1) from None


class _Queue(Generic[JobT]):
    """The remaining jobs, handed out in order when they are ready."""

    def __init__(self, jobs: Sequence[JobT], ready: Callable[[JobT], bool]) -> None:
        self._left = list(jobs)
        self._ready = ready
        self._running = 0
        self._changed = asyncio.Event()

    async def take(self) -> JobT | None:
        """The first job that is ready; None when none is left. Raises `TrainingError` if none will
        ever be ready."""
        while self._left:
            next_job = next((job for job in self._left if self._ready(job)), None)
            if next_job is not None:
                self._left.remove(next_job)
                self._running += 1
                return next_job
            if self._running == 0:
                raise TrainingError(f"{self._left[0].name} cannot start: its inputs do not exist")
            self._changed.clear()
            await self._changed.wait()
        return None

    def end(self) -> None:
        """Record that a job that was taken is no longer running."""
        self._running -= 1
        self._changed.set()

    def close(self) -> None:
        """Hand out no more jobs."""
        self._left.clear()
        self._changed.set()


class _Worker(Generic[JobT]):
    """Runs one job after the other, and keeps the process of the current one."""

    def __init__(self, command: Sequence[str], watcher: Callable[[JobT, JobLine], None]) -> None:
        self._command = command
        self._watcher = watcher
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._has_reported = False

    async def work(self, queue: _Queue[JobT]) -> None:
        """Take jobs until none is left. Raises `TrainingError`."""
        while not self._stopping and (job := await queue.take()) is not None:
            try:
                await self._run_job(job)
            finally:
                queue.end()

    async def _run_job(self, job: JobT) -> None:
        """Run a job to its end or until it is stopped. Raises `TrainingError`."""
        self._has_reported = False
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(_THREADS, "1")},
            # Only the parent sends Ctrl-C: two of them would stop a training step halfway.
            start_new_session=True,
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )  # fmt: skip
        try:
            if self._stopping:
                return
            assert process.stdin is not None
            process.stdin.write(job.model_dump_json().encode() + b"\n")
            process.stdin.close()
            await self._watch(process, job)
            code = await process.wait()
            if code not in (0, EXIT_INTERRUPTED) and not self._stopping:
                raise _exit_error(code, job.name)
        finally:
            send(process, signal.SIGKILL)
            await process.wait()

    def stop(self, *, at_once: bool) -> None:
        """Let the process save its progress, or kill it with `at_once`; before its first line there
        is nothing to save."""
        self._stopping = True
        if self._process is not None:
            gently = self._has_reported and not at_once
            send(self._process, signal.SIGINT if gently else signal.SIGKILL)

    async def _watch(self, process: asyncio.subprocess.Process, job: JobT) -> None:
        """Pass on the process's reports until it has finished or was stopped. Raises
        `TrainingError`."""
        assert process.stdout is not None
        async for line in process.stdout:
            try:
                update = JobLine.model_validate_json(line)
            except ValidationError as error:
                raise TrainingError(
                    f"{job.name}: its process wrote an unexpected line: {line[:200]!r}"
                ) from error
            if update.event == "failed":
                raise TrainingError(f"{job.name}: {update.message}")
            self._has_reported = True
            self._watcher(job, update)
            if update.event == "finished":
                return
        if not self._stopping:
            raise _exit_error(await process.wait(), job.name)


def _exit_error(code: int, where: str) -> TrainingError:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return TrainingError(
        f"{where}: the process {how}; see its output above, then resume with the same command"
    )
