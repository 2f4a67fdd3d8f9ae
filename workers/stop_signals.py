"""Signal handling of a process that serves until it is stopped.

SIGTERM, SIGHUP and SIGINT drain. A second SIGTERM or SIGHUP has no further effect: a service
manager signals a whole group of processes, and the supervisor in that group passes the signal on.
SIGQUIT, or a SIGINT during draining (a second Ctrl-C), abandons the work in progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Generator

DRAIN = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
ABANDON = signal.SIGQUIT


def send(process: asyncio.subprocess.Process, *numbers: signal.Signals) -> None:
    """Send signals to a process that asyncio waits for, unless it is known to be dead.

    The process's own `send_signal` polls for the exit code first. If the process exits between two
    calls, that poll would reap it, and asyncio, which comes too late, would report exit code 255.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            for number in numbers:
                os.kill(process.pid, number)


async def stop(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Let a process stop by itself within `seconds`, else kill it; return when it has exited."""
    send(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        send(process, signal.SIGKILL)
        await process.wait()


@contextlib.contextmanager
def stop_signals(
    drain: Callable[[signal.Signals], None], abandon: Callable[[signal.Signals], None]
) -> Generator[None]:
    """Call the matching callback in the event loop for each signal, `drain` at most once.

    A SIGHUP that the process was started to ignore (`nohup`) stays ignored.
    """
    loop = asyncio.get_running_loop()
    draining = False

    def on_signal(number: signal.Signals) -> None:
        nonlocal draining
        if number is ABANDON or (draining and number is signal.SIGINT):
            abandon(number)
        elif not draining:
            draining = True
            drain(number)

    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    numbers = [*DRAIN, ABANDON]
    if ignored:
        numbers.remove(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
