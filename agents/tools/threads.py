"""A plain function beside the event loop, in a thread that nothing has to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")


async def in_thread_of_its_own(function: Callable[[A], T], argument: A) -> T:
    """What `asyncio.to_thread` does, without its pool.

    A function that never returns keeps its thread for ever. In the shared pool of a few threads
    some of those would end every other tool, and the process could not exit; a daemon thread harms
    nobody. Raises what the function raises, and RuntimeError for what would end the process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(settle_now: Callable[[], None]) -> None:
        # Its waiter may have given up, and the loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else settle_now())

    def work() -> None:
        try:
            result = context.run(function, argument)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            ours = isinstance(error, Exception) and not isinstance(error, StopIteration)
            # sys.exit() ends the tool alone; a future takes no StopIteration.
            failure = error if ours else RuntimeError(f"{type(error).__name__}: {error}")
            settle(lambda: future.set_exception(failure))
        else:
            settle(lambda: future.set_result(result))

    threading.Thread(target=work, name=f"tool {function!r:.60}", daemon=True).start()
    return await future
