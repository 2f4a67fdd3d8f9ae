"""Ending background tasks, and finishing work, for sure."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

AGAIN = 0.5
"""Seconds between two cancellations."""


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until each is done, whatever it raised.

    One cancellation is not enough: code in between that is just leaving a time-out of its own can
    take it for that time-out and swallow it, and a loop that outlasts errors would then go on
    for ever. For the same reason it may be the caller that is cancelled again: that is raised when
    all tasks are done.
    """
    everyone = list(tasks)
    left = {task for task in everyone if not task.done()}
    cancelled: asyncio.CancelledError | None = None
    while left:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=AGAIN)
        except asyncio.CancelledError as error:
            cancelled = error
        left = {task for task in left if not task.done()}
    for task in everyone:
        if not task.cancelled():
            task.exception()  # so that none is "never retrieved"
    if cancelled is not None:
        raise cancelled


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """Do all of `work` even if the caller is cancelled meanwhile, as often as that may be (`end`
    does it again and again); the cancellation is raised when it is done."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
