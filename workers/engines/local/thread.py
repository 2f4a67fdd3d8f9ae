"""The thread that owns a model: commands in, events out.

Only this thread touches the backend (the model, its cache), the tokenizer and the scheduler. The
event loop never waits for it, so leases are renewed even during a long pass.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.backend import Backend, Loaded
from loopline.workers.engines.local.model_files import refuse_unreadable, unusable_error
from loopline.workers.engines.local.row import Job
from loopline.workers.engines.local.scheduler import Scheduler
from loopline.workers.engines.protocol import AnswerEvent, EngineBroken, EngineError, Occupancy
from loopline.workers.engines.settings import ModelSettings

_log = logging.getLogger(__name__)

L = TypeVar("L", bound=Loaded)
T = TypeVar("T")


@dataclass(frozen=True)
class _Call:
    """Work for the thread, between two passes. If no result is awaited, a failure ends the
    thread."""

    work: Callable[[], Any]
    result: Future[Any] | None = None


class ModelThread(Generic[L]):
    """Starts the thread, feeds it jobs from one event loop, and stops it."""

    def __init__(
        self, settings: ModelSettings, loop: asyncio.AbstractEventLoop, backend: Backend[L]
    ) -> None:
        self._settings = settings
        self._loop = loop
        self.backend = backend
        self._kind = backend.kind
        self._commands: queue.SimpleQueue[Job | _Call | None] = queue.SimpleQueue()
        """Commands for the thread; None is the last command and stops it."""
        self._started: Future[L] = Future()
        self._scheduler: Scheduler
        """Scheduler of the rows; the thread sets it at its start, and only the thread uses it."""
        self._thread = threading.Thread(
            target=self._run, name=f"{self._kind}-{settings.model}", daemon=True
        )

    # Called by the event loop.

    async def start(self) -> L:
        """Load the model in the thread. Raises the errors of `Backend.load`."""
        self._thread.start()
        return await asyncio.wrap_future(self._started)

    async def stop(self) -> None:
        """Stop the thread after its current pass; all running rows are dropped."""
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)

    def add(self, job: Job) -> None:
        self._commands.put(job)

    def abandon(self, job: Job) -> None:
        """Drop a job that is no longer awaited: it need not be finished."""
        self._commands.put(_Call(lambda: self._scheduler.abandon(job)))

    def score(self, ids: Sequence[int], adapter: AdapterVersion | None) -> Future[list[float]]:
        """See `Engine.score`."""
        return self._call(lambda: self._scheduler.score(list(ids), adapter))

    def load_adapter(self, path: str, read: Any) -> Future[Any]:
        """Load the weights of an `AdapterVersion` that `Backend.read_adapter` read at `path`."""
        return self._call(lambda: self._load_checked_adapter(path, read))

    def unload_adapter(self, adapter: AdapterVersion) -> None:
        """Free the memory of an adapter that no request uses any more."""
        self._commands.put(_Call(lambda: self.backend.forget_adapter(adapter)))

    def in_use(self) -> Future[dict[str, int]]:
        """The thread's part of `LocalEngine.in_use`."""
        return self._call(lambda: self._scheduler.in_use())

    @property
    def abandoned_tokens(self) -> int:
        return self._scheduler.abandoned_tokens

    def occupancy(self) -> Occupancy:
        """See `InProcessEngine.occupancy`."""
        return self._scheduler.occupancy()

    def _call(self, work: Callable[[], T]) -> Future[T]:
        result: Future[T] = Future()
        self._commands.put(_Call(work, result))
        return result

    # Run by the thread.

    def _run(self) -> None:
        try:
            with refuse_unreadable(self._settings.model):
                model = self.backend.load()
                self._scheduler = Scheduler(self.backend, model)
                try:
                    with self.backend.context():
                        self._check_numbers(None)
                except BaseException:
                    self.backend.unload()
                    raise
        except BaseException as error:  # noqa: BLE001 - it is raised again in `start`
            self._started.set_exception(error)
            return
        self._started.set_result(model)
        try:
            with self.backend.context():
                while self._take_commands():
                    self._scheduler.turn()
                    self._deliver()
        except BaseException as error:  # noqa: BLE001 - everybody who waits gets it
            _log.exception("the %s engine's thread failed", self._kind)
            failure = EngineBroken(
                f"the {self._kind} engine can't continue: {type(error).__name__}: {error}"
            )
            self._scheduler.fail_all(failure)
            self._refuse(failure, until_stopped=True)
        else:
            self._refuse(EngineError(f"the {self._kind} engine is closed"), until_stopped=False)
        finally:
            self.backend.unload()

    def _refuse(self, failure: EngineError, *, until_stopped: bool) -> None:
        """Refuse commands after the end. They may arrive until the stop: no caller may wait
        forever."""
        self._deliver()
        while until_stopped or not self._commands.empty():
            match self._commands.get():
                case Job() as job:
                    self._scheduler.outbox.append((job, failure))
                    self._deliver()
                case _Call(result=result):
                    if result is not None and result.set_running_or_notify_cancel():
                        result.set_exception(failure)
                case None:
                    until_stopped = False

    def _take_commands(self) -> bool:
        """Execute the commands that have arrived; blocks while there is nothing else to do. Returns
        False to stop."""
        idle = self._scheduler.idle
        while True:
            try:
                command = self._commands.get(block=idle)
            except queue.Empty:
                return True
            idle = False
            match command:
                case Job():
                    self._scheduler.add(command)
                case _Call(work=work, result=result):
                    if result is None:
                        work()
                    else:
                        self._answer(result, work)
                case None:
                    return False

    def _answer(self, result: Future[Any], work: Callable[[], Any]) -> None:
        if not result.set_running_or_notify_cancel():
            return
        try:
            result.set_result(work())
        except Exception as error:  # noqa: BLE001 - a model's code raises anything
            result.set_exception(self._scheduler.failure_of(error))

    def _load_checked_adapter(self, path: str, read: Any) -> Any:
        weights = self.backend.load_adapter(read)
        adapter = AdapterVersion(path, 0, weights)
        try:
            self._check_numbers(adapter)
        except BaseException:
            self.backend.forget_adapter(adapter)
            raise
        return weights

    def _check_numbers(self, adapter: AdapterVersion | None) -> None:
        """Let the model read two tokens, so that weights with a NaN or an infinity are refused
        while loading, before a request fails because of them. Raises EngineError."""
        if any(map(math.isnan, self._scheduler.raw_scores([0, 1], adapter))):
            name = self._settings.model if adapter is None else adapter.name
            raise unusable_error(
                name,
                "its weights produce values that are not finite (NaN or infinity): they are "
                "damaged, or too large for the dtype; try dtype = 'float32'",
                "model" if adapter is None else "adapter",
            )

    def _deliver(self) -> None:
        """Deliver all events of a turn with one wake-up of the event loop, regardless of their
        number."""
        if not self._scheduler.outbox:
            return
        events, self._scheduler.outbox = self._scheduler.outbox, []
        try:
            self._loop.call_soon_threadsafe(_put, events)
        except RuntimeError:
            _log.warning(
                "%d events of the %s engine came after the loop closed", len(events), self._kind
            )


def _put(events: list[tuple[Job, AnswerEvent | EngineError]]) -> None:
    for job, event in events:
        job.events.put_nowait(event)
