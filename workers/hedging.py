"""Hedged requests: where one is slow a second is sent, the first answer wins, and the other is
cancelled.

An endpoint's slowest answers are often slow by chance: the same request, sent again, is answered
sooner (Dean and Barroso, "The Tail at Scale", Communications of the ACM 56(2), 2013). It costs a
second call, which may be billed though nobody reads its answer. With a percentile of the pool's
own times as the limit, about that share of requests costs it.
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
"""Number of the latest requests whose times make a percentile."""
LEAST = 20
"""Fewest times from which a percentile is taken."""


class SlowAfter:
    """How long requests of one pool may take until they are slow."""

    def __init__(self, after: float | str | None) -> None:
        """Seconds, or a percentile of what they took: `p95`; None: they never are."""
        self._after = after
        self._times: dict[bool, deque[float]] = {
            streamed: deque(maxlen=MEASURED) for streamed in (False, True)
        }

    def seconds(self, *, stream: bool) -> float | None:
        """Seconds from sending a request to its answer, or to the first text of a stream, after
        which it is slow. None where no limit is set, or too little was measured. The percentile is
        the nearest rank: the least time that this share of all requests did not exceed."""
        if not isinstance(self._after, str):
            return self._after
        times = sorted(self._times[stream])
        if len(times) < LEAST:
            return None
        share = float(self._after.removeprefix("p")) / 100
        return times[max(0, math.ceil(share * len(times)) - 1)]

    def add(self, seconds: float, *, stream: bool) -> None:
        """A request took so long; at least so long, where another was quicker. As those lie above
        the limit, the percentile is the same as if they had been waited for."""
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
        """Note that the request of this number has an answer, or the first of its text. Raises
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
    is_passing: Callable[[int, BaseException], bool],
) -> T:
    """What the winner returns; each claims the race, as 0 or 1, before it returns. The second is
    begun this many seconds `after` the first was `sent`, if the race is open then. An error that
    `is_passing`, of the request of that number, leaves it to the other; where none is left, the
    first one's error is raised. Nothing is at work any more at the end."""
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
                    if error is None or not is_passing(number, error):
                        return task.result()
        return tasks[0].result()
    finally:
        await end([*tasks, sending, deciding])
