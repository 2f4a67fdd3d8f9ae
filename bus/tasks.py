"""Ending background tasks for sure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN = 0.5
"""Seconds between two cancellations."""


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until each is done, whatever it raised.

    One cancellation is not enough: code in between that is just leaving a time-out of its own can
    take it for that time-out and swallow it, and a loop that outlasts errors would then go on
    for ever.
    """
    everyone = list(tasks)
    left = {task for task in everyone if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN)
    await asyncio.gather(*everyone, return_exceptions=True)  # so that none is "never retrieved"
