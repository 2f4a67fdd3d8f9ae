"""Hedged requests: if a request is slow, a second one is sent, and the first answer wins.

The loser is cancelled. An endpoint's slowest answers are often slow by chance: the same request,
sent again, is answered sooner (Dean and Barroso, "The Tail at Scale", Communications of the ACM
56(2), 2013). The price is a second call, which may be billed although its answer is not used. If
the limit is a percentile of the pool's own times, about that share of requests pays it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from loopline.bus.tasks import end

T = TypeVar("T")

MEASURED = 200
"""Number of most recent requests from whose times the percentile is computed."""
LEAST = 20
"""Minimum number of times for a percentile."""


class SlowAfter:
    """Time after which a request to one pool is considered slow."""

    def __init__(self, after: float | str | None) -> None:
        """`after`: seconds, or a percentile of the measured times (`p95`); None: never slow."""
        self._after = after
        self._times: dict[bool, deque[float]] = {
            streamed: deque(maxlen=MEASURED) for streamed in (False, True)
        }

    def seconds(self, *, stream: bool) -> float | None:
        """Seconds after which a request is slow, from sending it to its answer, or to the first
        text of a stream.

        None if no limit is set or too few times were measured. The percentile is the nearest rank:
        the smallest time that this share of all requests did not exceed.
        """
        if not isinstance(self._after, str):
            return self._after
        times = sorted(self._times[stream])
        if len(times) < LEAST:
            return None
        share = float(self._after.removeprefix("p")) / 100
        return times[max(0, math.ceil(share * len(times)) - 1)]

    def add(self, seconds: float, *, stream: bool) -> None:
        """Record a request's time; if another request was faster, the time is only a lower bound.
        Such bounds are above the limit, so the percentile is the same as if the answers had been
        awaited."""
        self._times[stream].append(seconds)


class Beaten(Exception):
    """Another request was answered first."""


class Race:
    """Race between the requests for one answer."""

    def __init__(self) -> None:
        self.winner: int | None = None
        self.decided = asyncio.Event()
        self.decided_at = 0.0
        """Time of the decision by the event loop's clock."""

    def claim(self, number: int) -> None:
        """Record that the request with this number has an answer, or the first text of one. Raises
        `Beaten`."""
        if self.winner is None:
            self.winner = number
            self.decided_at = asyncio.get_running_loop().time()
            self.decided.set()
        elif self.winner != number:
            raise Beaten


async def run(
    race: Race,
    first: Coroutine[Any, Any, T],
    second: Callable[[], Coroutine[Any, Any, T]],
    *,
    sent: asyncio.Event,
    after: float,
    is_tolerated: Callable[[int, BaseException], bool],
) -> T:
    """Run the race and return the winner's result.

    Each request claims the race, as number 0 or 1, before it returns. The second one starts `after`
    seconds after the first was `sent`, if the race is still open. If a request fails with an error
    that `is_tolerated` accepts, the other one may still win; if none is left, the first one's error
    is raised. No task is running on return.
    """
    tasks = [asyncio.create_task(first)]
    deciding = asyncio.create_task(race.decided.wait())
    sending = asyncio.create_task(sent.wait())
    try:
        await asyncio.wait({tasks[0], sending, deciding}, return_when=asyncio.FIRST_COMPLETED)
        if sent.is_set():
            await asyncio.wait(
                {tasks[0], deciding}, timeout=after, return_when=asyncio.FIRST_COMPLETED
            )
        if not tasks[0].done() and race.winner is None:
            tasks.append(asyncio.create_task(second()))
        pending = set(tasks)
        while pending:
            done, _ = await asyncio.wait({*pending, deciding}, return_when=asyncio.FIRST_COMPLETED)
            if race.winner is not None:
                await end(task for number, task in enumerate(tasks) if number != race.winner)
                return await tasks[race.winner]
            for number, task in enumerate(tasks):
                if task in done and task in pending:
                    pending.discard(task)
                    error = task.exception()
                    if error is None or not is_tolerated(number, error):
                        return task.result()
        return tasks[0].result()
    finally:
        await end([*tasks, sending, deciding])
