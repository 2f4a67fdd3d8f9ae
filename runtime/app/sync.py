"""An app for code without an event loop. A thread of this process runs an event loop and keeps a
connection there. A caller blocks until its answer has arrived, even if it is called within a
running loop."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from loopline.runtime.app.events import Event

if TYPE_CHECKING:
    from loopline.runtime.app.app import App

T = TypeVar("T")
CLOSE_SECONDS = 5.0


class _Loop:
    """An event loop in a thread, for one process: a forked child needs another one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self.loop.run_forever, name="loopline-app", daemon=True)
        thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C during the wait cancels the run, as for any other caller.
            future.cancel()
            raise


class SyncApp:
    """App for code without an event loop; made by `App.sync`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._current: _Loop | None = None

    @overload
    def ask(self, question: str, *, answer: type[T], **options: Any) -> T: ...

    @overload
    def ask(self, question: str, *, answer: None = None, **options: Any) -> str: ...

    def ask(self, question: str, *, answer: Any = None, **options: Any) -> Any:
        """Ask a question, as `App.ask` does."""
        return self._loop().run(self._app.ask(question, answer=answer, **options))

    def stream(self, question: str, **options: Any) -> Iterator[Event]:
        """Yield the events of a run, as `App.stream` does."""
        loop = self._loop()
        events: AsyncGenerator[Event] = self._app.stream(question, **options)
        try:
            while (event := loop.run(_next(events))) is not None:
                yield event
        finally:
            loop.run(_close(events))

    def thread(self, thread_id: str) -> SyncThread:
        """Return a conversation, as `App.thread` does."""
        return SyncThread(self, thread_id)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the app in its loop."""
        return self._loop().run(work)

    @property
    def app(self) -> App:
        return self._app

    def _loop(self) -> _Loop:
        with self._lock:
            current = self._current
            if current is None or current.pid != os.getpid():
                current = self._current = _Loop()
                if self._app.is_local:
                    return current
                try:
                    current.run(self._app.__aenter__())
                except BaseException:
                    self._current = None
                    current.loop.call_soon_threadsafe(current.loop.stop)
                    raise
                atexit.register(self._close, current)
            return current

    def _close(self, current: _Loop) -> None:
        if current.pid != os.getpid():
            return
        closing = asyncio.run_coroutine_threadsafe(self._app.__aexit__(), current.loop)
        try:
            closing.result(CLOSE_SECONDS)
        finally:
            current.loop.call_soon_threadsafe(current.loop.stop)


class SyncThread:
    """Conversation without an event loop, otherwise like `Thread`."""

    def __init__(self, sync: SyncApp, thread_id: str) -> None:
        self._sync = sync
        self._thread = sync.app.thread(thread_id)

    @overload
    def ask(self, question: str, *, answer: type[T], **options: Any) -> T: ...

    @overload
    def ask(self, question: str, *, answer: None = None, **options: Any) -> str: ...

    def ask(self, question: str, *, answer: Any = None, **options: Any) -> Any:
        """Ask the next question, as `Thread.ask` does."""
        return self._sync.run(self._thread.ask(question, answer=answer, **options))


async def _next(events: AsyncGenerator[Event]) -> Event | None:
    return await anext(events, None)


async def _close(events: AsyncGenerator[Event]) -> None:
    await events.aclose()
