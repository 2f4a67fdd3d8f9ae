"""Runs a plain function next to the event loop, in a thread that nothing has to wait for."""

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
"""Threads of one function that are still running although nobody waits for them."""

_left_behind: dict[Callable[..., Any], list[threading.Thread]] = {}


class TooManyLeftBehind(Exception):
    """Too many calls of a function never returned: no further ones are started."""


async def run_in_own_thread(function: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """What `asyncio.to_thread` does, without its pool.

    A function that never returns keeps its thread for ever. In the shared pool of a few threads
    some of those would end every other tool, and the process could not exit; a daemon thread harms
    nobody. But each holds memory, so there are never more than `MAX_LEFT_BEHIND` alongside those
    that somebody waits for.

    Raises what the function raises, RuntimeError for what would end the process, and
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
        # Its waiter may have given up, and the loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else settle_now())

    def work() -> None:
        try:
            result = context.run(function, *arguments)
        except BaseException as error:  # noqa: BLE001 - handed to anyone who waits
            is_plain_error = isinstance(error, Exception) and not isinstance(error, StopIteration)
            # sys.exit() ends the tool alone; a future takes no StopIteration.
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
