"""One sandboxed interpreter: started in advance, given one program, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import shutil
import signal
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from typing import Any

from loopline.workers.sandbox import seccomp
from loopline.workers.sandbox.bubblewrap import (
    ENVIRONMENT,
    Bubblewrap,
    inside_folder,
    launcher_command,
)
from loopline.workers.sandbox.input_file import InputFile
from loopline.workers.sandbox.inside.launcher import EXIT_MEMORY, READY
from loopline.workers.sandbox.limits import MIB, Limits
from loopline.workers.sandbox.result import Ending, Result, SandboxUnavailable

START_SECONDS = 60.0
"""Longest start of an interpreter, on a busy machine. A typical one takes 0.05 s."""
MAX_SOURCE_BYTES = 4 * MIB
"""Largest program, together with its data."""
_CHUNK = 2**16
_PIPE_SECONDS = 5.0


class SandboxProcess:
    """An interpreter in its sandbox. `start` it, `give` it a job, then read and write as with any
    process; `finish` returns the result. `end` it in any case."""

    def __init__(self, process: Process, folder: str | None, file: InputFile) -> None:
        self._process = process
        self._file = file
        self._folder = folder
        """Working directory of an unsafe program."""
        self._limits = Limits()
        self._given = 0.0
        self._ended: Ending | None = None
        """Reason why it was ended from outside."""
        self._stdout, self._stderr = bytearray(), bytearray()
        self._errors: asyncio.Task[None] | None = None
        self._line = b""

    @classmethod
    async def start(cls, bubblewrap: Bubblewrap | None) -> SandboxProcess:
        """An interpreter that is ready; without bubblewrap it has limits but no isolation.

        Raises SandboxUnavailable if it does not start.
        """
        folder = None if bubblewrap else tempfile.mkdtemp(prefix="loopline-unsafe-")
        file = InputFile()
        try:
            process = await (
                _start_isolated(bubblewrap, file) if bubblewrap else _start_unsafe(folder, file)
            )
        except BaseException:
            file.close()
            raise
        instance = cls(process, folder, file)
        try:
            assert process.stdout is not None
            async with asyncio.timeout(START_SECONDS):
                ready = await process.stdout.read(1)
            if ready != READY:
                assert process.stderr is not None
                message = (await process.stderr.read(2_000)).decode(errors="replace").strip()
                raise SandboxUnavailable(f"a sandboxed interpreter did not start: {message}")
        except TimeoutError as error:
            await instance.end()
            raise SandboxUnavailable(
                f"a sandboxed interpreter did not start within {START_SECONDS:.0f} s"
            ) from error
        except BaseException:
            await instance.end()
            raise
        return instance

    @property
    def alive(self) -> bool:
        """Whether the process is still running, as far as is known."""
        return self._process.returncode is None

    def give(self, job: Mapping[str, Any], limits: Limits, stdin: str | None = None) -> None:
        """Hand over the one job and start its clock. `stdin` is the program's standard input, as a
        file. Raises ValueError if the job is too large."""
        content = marshal.dumps({**job, "limits": limits.model_dump()})
        if len(content) > MAX_SOURCE_BYTES:
            raise ValueError(
                f"the program has {len(content):,} bytes, more than the sandbox accepts "
                f"({MAX_SOURCE_BYTES:,}): shorten it"
            )
        # Written before the program starts, and sealed.
        self._file.write((stdin or "").encode(errors="replace"))
        self._limits, self._given = limits, time.monotonic()
        self._errors = asyncio.create_task(self._collect_errors())
        self._write(len(content).to_bytes(8, "big") + content)

    async def write_line(self, line: bytes, seconds: float | None = None) -> None:
        """Write a line of its input; does nothing if it has exited. A process that does not read
        the line in time is killed. `seconds` limits this call."""
        self._write(line + b"\n")
        assert self._process.stdin is not None
        try:
            async with asyncio.timeout_at(self._deadline(seconds)):
                await self._process.stdin.drain()
        except ConnectionError:
            return
        except TimeoutError:
            self._stop(Ending.TIMED_OUT)

    async def read_line(self, seconds: float | None = None) -> bytes | None:
        """The next line of its output without the newline; None at the end of the output, also
        because its time or output limit was exceeded. `seconds` limits this call."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout_at(self._deadline(seconds)):
                while b"\n" not in self._line:
                    part = await self._process.stdout.read(_CHUNK)
                    if not part:
                        return None
                    self._line += part
                    if len(self._line) > self._limits.output_bytes:
                        self._stop(Ending.OUTPUT_TOO_LONG)
                        return None
        except TimeoutError:
            self._stop(Ending.TIMED_OUT)
            return None
        line, _, self._line = self._line.partition(b"\n")
        return line

    async def finish(self, *, seconds: float | None = None) -> Result:
        """Close its input, read its output to the end, and return how it ended.

        Lines returned by `read_line` are not part of the result's output. `seconds` limits this
        call.
        """
        closing = asyncio.create_task(self._close_input())
        assert self._errors is not None
        self._stdout += self._line
        try:
            async with asyncio.timeout_at(self._deadline(seconds)):
                await self._collect(self._process.stdout, self._stdout)
                await self._errors
                await self._process.wait()
        except TimeoutError:
            self._stop(Ending.TIMED_OUT)
        finally:
            await _cancel_and_wait(closing)
        wall = time.monotonic() - self._given
        await self.end()
        code = self._process.returncode
        ending = self._ended or _ending(code)
        exit_code = None if self._ended else _signal_exit_code(code)
        return Result(ending, _text(self._stdout), _text(self._stderr), exit_code, wall)

    async def end(self) -> None:
        """Kill the rest of the process group or sandbox, and wait for that."""
        self._file.close()
        self._kill()
        if self._errors is not None:
            await _cancel_and_wait(self._errors)
        await self._wait_for_pipes()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _wait_for_pipes(self) -> None:
        """Asyncio closes a pipe when it has been read to its end, and reports a process as ended
        when its pipes are closed. Without a sandbox, a surviving child may hold them open."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PIPE_SECONDS):
                for stream in (self._process.stdout, self._process.stderr):
                    assert stream is not None
                    while await stream.read(_CHUNK):
                        continue
                await self._process.wait()
                with contextlib.suppress(ConnectionError):
                    await self._process.stdin.wait_closed()

    def _deadline(self, seconds: float | None = None) -> float:
        """Deadline of the program, or `seconds` from now if that is sooner; in the loop's time."""
        remaining = self._given + self._limits.wall_seconds - time.monotonic()
        if seconds is not None:
            remaining = min(remaining, seconds)
        return asyncio.get_running_loop().time() + remaining

    def _write(self, content: bytes) -> None:
        assert self._process.stdin is not None
        # The pipe is closed if the process has exited: uvloop then raises RuntimeError, while
        # asyncio only fails to drain.
        if not self._process.stdin.is_closing():
            self._process.stdin.write(content)

    async def _close_input(self) -> None:
        assert self._process.stdin is not None
        # A program may exit, or close its input, before it has read everything.
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.drain()
            if not self._process.stdin.is_closing():
                self._process.stdin.write_eof()

    async def _collect(self, stream: asyncio.StreamReader | None, into: bytearray) -> None:
        assert stream is not None
        most = self._limits.output_bytes
        while part := await stream.read(_CHUNK):
            room = most - len(into)
            into += part[:room]
            if len(part) > room:
                # Keep reading until the process's end closes the pipe.
                self._stop(Ending.OUTPUT_TOO_LONG)

    async def _collect_errors(self) -> None:
        await self._collect(self._process.stderr, self._stderr)

    def _stop(self, why: Ending) -> None:
        if self._ended is None:
            self._ended = why
        self._kill()

    def _kill(self) -> None:
        """Kill bubblewrap, and with it everything in its namespace; otherwise the process group."""
        if self._folder is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        elif self.alive:
            # Not `Process.kill`: it polls first whether the process has exited, and takes the exit
            # code away from asyncio's watcher.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)


async def _cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for it; its result is discarded."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


async def _start_isolated(bubblewrap: Bubblewrap, file: InputFile) -> Process:
    read, write = os.pipe()
    try:
        # The filter fits into a pipe's buffer.
        os.write(write, seccomp.program())
        os.close(write)
        return await asyncio.create_subprocess_exec(
            *bubblewrap.command(read, file.descriptor),
            stdin=PIPE, stdout=PIPE, stderr=PIPE,
            # Bubblewrap's environment is empty, too: its process can be inspected from inside.
            env={}, pass_fds=(read, file.descriptor),
            start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(read)


async def _start_unsafe(folder: str | None, file: InputFile) -> Process:
    return await asyncio.create_subprocess_exec(
        *launcher_command(str(inside_folder()), "unsafe", file.descriptor),
        stdin=PIPE, stdout=PIPE, stderr=PIPE, env=ENVIRONMENT, cwd=folder, start_new_session=True,
        pass_fds=(file.descriptor,),
    )  # fmt: skip


def _signal_exit_code(code: int | None) -> int | None:
    """Bubblewrap reports a signal as 128 + its number, as a shell does."""
    return 128 - code if code is not None and code > 128 and code != EXIT_MEMORY else code


def _ending(code: int | None) -> Ending:
    signed = _signal_exit_code(code)
    if signed == 0:
        return Ending.OK
    if signed == EXIT_MEMORY:
        return Ending.OUT_OF_MEMORY
    if signed == -signal.SIGXCPU:
        return Ending.TIMED_OUT
    return Ending.KILLED if signed is not None and signed < 0 else Ending.ERROR


def _text(content: bytearray) -> str:
    return content.decode("utf-8", errors="replace")
