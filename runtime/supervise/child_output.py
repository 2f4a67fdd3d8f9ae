"""Copies the output of a child process into its log, so that this process can rotate the log while
the child keeps its pipe."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from io import FileIO
from typing import Any

from loopline.bus import tasks
from loopline.runtime.observe.log_files import RotatingLog, pump

LAST_WORDS_SECONDS = 1.0
"""Seconds after a process's death during which its last output is copied into its log."""


async def start_with_output(
    start: Callable[[int], Coroutine[Any, Any, asyncio.subprocess.Process]],
) -> tuple[asyncio.subprocess.Process, FileIO]:
    """Start a process with `start`, which receives the descriptor for the output. Return the
    process and the file to read from, which the caller closes."""
    # Our own pipe: with asyncio's pipe, a dead process is only noticed once its own children have
    # closed the pipe, too.
    reading, writing = os.pipe()
    output = FileIO(reading)
    try:
        return await start(writing), output
    except BaseException:
        output.close()
        raise
    finally:
        os.close(writing)


async def copy_until_dead(
    process: asyncio.subprocess.Process, output: FileIO, log: RotatingLog
) -> int:
    """Copy a process's output into the log until the process dies; return its exit code. Does not
    wait for the process's own children, which may live on and keep the output open.
    """
    stream = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), output
    )
    pumping = asyncio.create_task(pump(stream, log))
    dead = asyncio.create_task(process.wait())
    try:
        await asyncio.wait({pumping, dead}, return_when=asyncio.FIRST_COMPLETED)
        if not pumping.done():
            await asyncio.wait({pumping}, timeout=LAST_WORDS_SECONDS)
        if pumping.done():
            pumping.result()
        return await dead
    finally:
        await tasks.end([pumping, dead])
        pipe.close()
