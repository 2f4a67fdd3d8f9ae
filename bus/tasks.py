"""Background tasks that can't end unnoticed; reliable ways to cancel tasks and to finish work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import structlog

from loopline.bus.errors import BackgroundEnded

log = structlog.get_logger("loopline.bus.tasks")

T = TypeVar("T")

AGAIN = 0.5
"""Seconds between two cancellations."""


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until each is done, whatever it raised.

    One cancellation is not enough: code that is just leaving its own timeout can mistake the
    cancellation for that timeout and swallow it, and a loop that survives errors would then run
    forever. The caller may be cancelled repeatedly for the same reason: this is raised when all
    tasks are done.
    """
    everyone = list(tasks)
    remaining = {task for task in everyone if not task.done()}
    cancelled: asyncio.CancelledError | None = None
    while remaining:
        for task in remaining:
            task.cancel()
        try:
            await asyncio.wait(remaining, timeout=AGAIN)
        except asyncio.CancelledError as error:
            cancelled = error
        remaining = {task for task in remaining if not task.done()}
    for task in everyone:
        if not task.cancelled():
            task.exception()  # so that no exception is "never retrieved"
    if cancelled is not None:
        raise cancelled


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """Complete all of `work` even if the caller is cancelled meanwhile, however often (`end`
    cancels repeatedly); the cancellation is raised afterwards."""
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


class Background:
    """Tasks that others rely on without waiting for them: if one ends by itself, with an exception
    or a return, the work within `run` is cancelled.

    Without this class, a worker whose sweeper or heartbeat has died would report itself ready
    forever.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._asked: set[asyncio.Task[Any]] = set()
        """Tasks that may end now."""
        self._error: BackgroundEnded | None = None
        self._broken = asyncio.Event()
        self._listeners: list[Callable[[BackgroundEnded], None]] = []

    def start(
        self, work: Coroutine[Any, Any, None], *, name: str, may_end: bool = False
    ) -> asyncio.Task[None]:
        """Start a task. With `may_end`, it may return when its work is done; it must never
        raise."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._on_task_done(task, may_end))
        return task

    def fail(self, name: str, error: BaseException | None = None) -> None:
        """Report the failure of something that is not a task here, such as a thread; call this in
        the event loop. The first failure counts."""
        if self._error is not None:
            return
        reason = "it returned" if error is None else f"{type(error).__name__}: {error}"
        self._error = BackgroundEnded(f"{name} ended by itself ({reason})")
        self._error.__cause__ = error
        log.error("background task ended", name=name, error=reason, exc_info=error)
        self._broken.set()
        for listener in self._listeners:
            listener(self._error)

    def check(self) -> None:
        """Raise `BackgroundEnded` if a task has ended by itself."""
        if self._error is not None:
            raise self._error

    def on_end(self, listener: Callable[[BackgroundEnded], None]) -> None:
        """Call the listener in the event loop once a task has ended by itself."""
        self._listeners.append(listener)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work, and return its result or raise its exception. If a task ends by itself
        meanwhile, or has ended before, the work is cancelled and `BackgroundEnded` is raised."""
        working = asyncio.create_task(work)
        broken = asyncio.create_task(self._broken.wait())
        try:
            await asyncio.wait({working, broken}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
        finally:
            await end([working, broken])
        self.check()
        raise AssertionError("set without an error")

    async def stop(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Stop some of the tasks, which are no longer needed."""
        task_list = list(tasks)
        self._asked.update(task_list)
        try:
            await end(task_list)
        finally:
            self._asked.difference_update(task_list)

    async def end(self) -> None:
        await self.stop(self._tasks)

    def _on_task_done(self, task: asyncio.Task[Any], may_end: bool) -> None:
        self._tasks.discard(task)
        if task in self._asked:
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None or not may_end:
            self.fail(task.get_name(), error)
