"""Requests in work: how each of them is cancelled, and how it meets its deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from loopline.workers.engines.protocol import EngineDeadline, EngineError, GenerateRequest

T = TypeVar("T")


class Ticket:
    """One request in work. Everything it waits for goes through `guard` or `telling`."""

    def __init__(self, request: GenerateRequest) -> None:
        self.request_id = request.id
        remaining = None if request.deadline is None else request.deadline - time.time()
        self._ends = None if remaining is None else time.monotonic() + remaining
        """By a clock that nobody sets: it may be long until then."""
        self._cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tell: Callable[[EngineError], object] | None = None

    def cancel(self) -> None:
        """Make the request's current or next wait raise."""
        if not self._cancelled.done():
            self._cancelled.set_result(None)
            if self._tell is not None:
                self._tell(self._cancelled_error())

    @contextmanager
    def telling(self, tell: Callable[[EngineError], object]) -> Generator[None]:
        """Within the block, `tell` is called with the error when the request is cancelled or its
        deadline passes: for who waits for thousands of events, each too cheap for a `guard`."""
        if self._cancelled.done():
            raise self._cancelled_error()
        self._tell = tell
        remaining = self.seconds_left()
        timer = None
        if remaining is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(remaining, lambda: tell(self._deadline_error()))
        try:
            yield
        finally:
            self._tell = None
            if timer is not None:
                timer.cancel()

    def _cancelled_error(self) -> EngineError:
        return EngineError(f"request {self.request_id} was cancelled", kind="cancelled")

    def _deadline_error(self) -> EngineDeadline:
        return EngineDeadline(f"request {self.request_id}: its deadline passed while it ran")

    def seconds_left(self) -> float | None:
        """Until the deadline, never negative; `None` without one."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    async def guard(
        self,
        work: Coroutine[Any, Any, T],
        *,
        timeout: float | None = None,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """The result of `work`, unless something else comes first: then `work` is cancelled.

        Raises EngineError of kind `cancelled`, EngineDeadline, or TimeoutError after `timeout`
        seconds. `undo` gives back a result that arrived while the waiter itself was cancelled
        (a slot taken that nobody would release).
        """
        remaining = self.seconds_left()
        limits = [seconds for seconds in (timeout, remaining) if seconds is not None]
        task = asyncio.ensure_future(work)
        delivered = False
        try:
            if not self._cancelled.done():
                await asyncio.wait(
                    {task, self._cancelled},
                    timeout=min(limits, default=None),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            if task.done():
                result = task.result()
                delivered = True
                return result
        finally:
            if not delivered:
                task.cancel()
                (outcome,) = await asyncio.gather(task, return_exceptions=True)
                if undo is not None and not isinstance(outcome, BaseException):
                    undo(outcome)
        if self._cancelled.done():
            raise self._cancelled_error()
        # Not by the clock: uvloop's timers may end a little early.
        if remaining is not None and (timeout is None or remaining <= timeout):
            raise self._deadline_error()
        raise TimeoutError

    async def pause(self, seconds: float) -> None:
        """Sleep, or raise as `guard` does. Zero still notices a cancelled or late request."""
        await self.guard(asyncio.sleep(seconds))

    async def take(self, slots: asyncio.Semaphore) -> None:
        """Wait for one of the engine's slots; the caller releases it."""
        await self.guard(slots.acquire(), undo=lambda _: slots.release())


class InFlight:
    """All requests of one engine that are in work."""

    def __init__(self) -> None:
        self._tickets: dict[str, set[Ticket]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tickets.values()))

    @contextmanager
    def enter(self, request: GenerateRequest) -> Generator[Ticket]:
        """Keep a ticket for as long as the request is in work. An id may be in work twice: a
        worker that lost its lease and its successor ask for the same thing."""
        ticket = Ticket(request)
        same = self._tickets.setdefault(request.id, set())
        same.add(ticket)
        try:
            yield ticket
        finally:
            same.discard(ticket)
            if not same and self._tickets.get(request.id) is same:
                del self._tickets[request.id]

    def cancel(self, request_id: str) -> None:
        """Cancel every request with this id; an unknown id is one that has already ended."""
        for ticket in self._tickets.get(request_id, ()):
            ticket.cancel()

    def cancel_all(self) -> None:
        """Cancel everything: the engine closes."""
        for request_id in list(self._tickets):
            self.cancel(request_id)
