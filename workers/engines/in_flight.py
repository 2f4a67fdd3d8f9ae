"""Requests in flight: how each one is cancelled, and how it keeps its deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from loopline.workers.engines.protocol import EngineDeadline, EngineError, GenerateRequest

T = TypeVar("T")


class Ticket:
    """One request in flight. All its waits go through `guard` or `telling`."""

    def __init__(self, request: GenerateRequest) -> None:
        self.request_id = request.id
        remaining = None if request.deadline is None else request.deadline - time.time()
        self._ends = None if remaining is None else time.monotonic() + remaining
        """Deadline on the monotonic clock, which nobody can change: it may be far away."""
        self._cancelled = False
        self._scope: asyncio.Timeout | None = None
        """Timeout of the guard that is waiting now."""
        self._tell: Callable[[EngineError], object] | None = None

    def cancel(self) -> None:
        """Make the request's current or next wait raise."""
        if not self._cancelled:
            self._cancelled = True
            if self._scope is not None and not self._scope.expired():
                self._scope.reschedule(asyncio.get_running_loop().time())
            if self._tell is not None:
                self._tell(self._cancelled_error())

    @contextmanager
    def telling(self, tell: Callable[[EngineError], object]) -> Generator[None]:
        """Call `tell` with the error when the request is cancelled or its deadline passes within
        the block: for a caller that waits for thousands of events, each too short for a `guard`."""
        if self._cancelled:
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
        """Seconds until the deadline, never negative; `None` without a deadline."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    async def guard(self, work: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
        """Return the result of `work`, unless something else happens first. Then `work` is
        cancelled and has finished when this raises EngineError of kind `cancelled`, EngineDeadline,
        or TimeoutError after `timeout` seconds."""
        remaining = self.seconds_left()
        if self._cancelled or remaining == 0:
            work.close()
            raise self._cancelled_error() if self._cancelled else self._deadline_error()
        limits = [seconds for seconds in (timeout, remaining) if seconds is not None]
        before = self._scope
        try:
            # Not a separate task: a stream waits here for each of its chunks.
            async with asyncio.timeout(min(limits, default=None)) as self._scope:
                return await work
        except TimeoutError:
            if self._cancelled:
                raise self._cancelled_error() from None
            # Don't compare with the clock: uvloop's timers may fire a little early.
            by_deadline = remaining is not None and (timeout is None or remaining <= timeout)
            if by_deadline and self._scope is not None and self._scope.expired():
                raise self._deadline_error() from None
            raise
        finally:
            self._scope = before

    async def pause(self, seconds: float) -> None:
        """Sleep, or raise as `guard` does. Zero still notices a cancelled or late request."""
        await self.guard(asyncio.sleep(seconds))

    async def take(self, slots: asyncio.Semaphore) -> None:
        """Wait for one of the engine's slots; the caller releases it."""
        if slots.locked() or self._cancelled or self.seconds_left() == 0:
            await self.guard(slots.acquire())
        else:
            await slots.acquire()


class InFlight:
    """All requests of one engine that are in flight."""

    def __init__(self) -> None:
        self._tickets: dict[str, set[Ticket]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tickets.values()))

    @contextmanager
    def enter(self, request: GenerateRequest) -> Generator[Ticket]:
        """Keep a ticket while the request is in flight. An id may be in flight twice, when a worker
        that lost its lease and its successor both run the request."""
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
        """Cancel every request with this id; an unknown id belongs to a request that has
        finished."""
        for ticket in self._tickets.get(request_id, ()):
            ticket.cancel()

    def cancel_all(self) -> None:
        """Cancel everything, because the engine is closing."""
        for request_id in list(self._tickets):
            self.cancel(request_id)
