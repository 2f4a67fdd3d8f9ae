"""Run a plain function outside the event loop, in a thread that nothing has to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")

MAX_LEFT_BEHIND = 32
"""Maximum number of one function's threads that still run after their callers gave up."""

_left_behind: dict[Callable[..., Any], list[threading.Thread]] = {}


class TooManyLeftBehind(Exception):
    """Too many calls of a function never returned: no more are started."""


async def run_in_own_thread(function: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Run a function in a thread, like `asyncio.to_thread` but without its pool.

    A function that never returns keeps its thread forever. In the small shared pool, a few of those
    would block every other tool, and the process could not exit; a daemon thread does no harm. But
    each one uses memory, so a function with `MAX_LEFT_BEHIND` abandoned threads gets no new one.

    Raises what the function raises, RuntimeError for exceptions that would end the process, and
    `TooManyLeftBehind` until a thread of this function ends.
    """
    running = [thread for thread in _left_behind.pop(function, ()) if thread.is_alive()]
    if running:
        _left_behind[function] = running
    if len(running) >= MAX_LEFT_BEHIND:
        raise TooManyLeftBehind(
            f"{len(running)} earlier calls never came back; none is begun until one of them ends "
            "or its worker is restarted"
        )
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(settle_now: Callable[[], None]) -> None:
        # The waiter may have given up, and the loop may already be closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else settle_now())

    def work() -> None:
        try:
            result = context.run(function, *arguments)
        except BaseException as error:  # noqa: BLE001 - handed to anyone who waits
            is_plain_error = isinstance(error, Exception) and not isinstance(error, StopIteration)
            # sys.exit() ends only the tool; a future does not accept StopIteration.
            failure = error if is_plain_error else RuntimeError(f"{type(error).__name__}: {error}")
            settle(lambda: future.set_exception(failure))
        else:
            settle(lambda: future.set_result(result))

    thread = threading.Thread(target=work, name=f"tool {function!r:.60}", daemon=True)
    thread.start()
    try:
        return await future
    except asyncio.CancelledError:
        _left_behind.setdefault(function, []).append(thread)
        raise
