"""The thread that owns a model: lets requests in, plans passes, draws tokens, hands events back.

Continuous batching: a row leaves with its last token, and a waiting request joins before the next
pass. First come, first served, but for a prompt that begins like one which is about to be read: it
waits for that one's keys and values, and lets those behind it pass.

When memory runs out, rows are set back and read again when others have ended. The oldest row always
goes on, so every request ends; only one that does not fit alone is refused.

Nothing but this thread touches the backend (the model, its cache) and the tokenizer. The event loop
never waits for it, so leases are renewed however long a pass takes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.backend import (
    WORTH_SHARING,
    Backend,
    Loaded,
    Shortage,
    shares_more,
)
from loopline.workers.engines.local.model_files import reading, unusable
from loopline.workers.engines.local.row import Job, Row, check_ids
from loopline.workers.engines.local.sampling import Sampled, choose_tokens
from loopline.workers.engines.protocol import AnswerEvent, EngineBroken, EngineError
from loopline.workers.engines.request_checks import context_overflow
from loopline.workers.engines.settings import ModelSettings

_log = logging.getLogger(__name__)

L = TypeVar("L", bound=Loaded)
T = TypeVar("T")


@dataclass(frozen=True)
class _Call:
    """Work for the thread, between two passes. Without a result nobody waits for it, and its
    failure is the thread's."""

    work: Callable[[], Any]
    result: Future[Any] | None = None


class Scheduler(Generic[L]):
    """Start it, feed it jobs from one event loop, stop it."""

    def __init__(
        self, settings: ModelSettings, loop: asyncio.AbstractEventLoop, backend: Backend[L]
    ) -> None:
        self._settings = settings
        self._loop = loop
        self.backend = backend
        self._kind = backend.kind
        self._commands: queue.SimpleQueue[Job | _Call | None] = queue.SimpleQueue()
        """None is the last one: stop."""
        self._started: Future[L] = Future()
        self._model: L
        # A request's rows are in exactly one of the three: not let in yet, in work, set back. All
        # three, and everything below, belong to the thread.
        self._waiting: deque[Job] = deque()
        self._rows: list[Row] = []
        self._parked: deque[Row] = deque()
        """The oldest first; they come before all that wait."""
        self._places = 0
        """Rows that are let in now: fewer than the backend's for a while after memory ran out."""
        self._ended = 0
        """Rows that ended since the number of places was changed."""
        self._outbox: list[tuple[Job, AnswerEvent | EngineError]] = []
        self._thread = threading.Thread(
            target=self._run, name=f"{self._kind}-{settings.model}", daemon=True
        )
        self.abandoned_tokens = 0
        """Tokens of requests that were abandoned; written by the thread alone."""

    # What the event loop calls.

    async def start(self) -> L:
        """Load the model in the thread. Raises what `Backend.load` raises."""
        self._thread.start()
        return await asyncio.wrap_future(self._started)

    async def stop(self) -> None:
        """Let the thread end after its current pass; everything in work is dropped."""
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)

    def add(self, job: Job) -> None:
        self._commands.put(job)

    def abandon(self, job: Job) -> None:
        """Nobody waits for this job any more: it need not be finished."""
        # Giving back may need memory itself, and so may fail.
        self._commands.put(_Call(lambda: self._guarded(lambda: self._abandon(job), [job])))

    def score(self, ids: Sequence[int], adapter: AdapterVersion | None) -> Future[list[float]]:
        """See `Engine.score`."""
        return self._call(lambda: self._score(list(ids), adapter))

    def load_adapter(self, path: str, read: Any) -> Future[Any]:
        """The weights of an `AdapterVersion`, of what `Backend.read_adapter` read at `path`."""
        return self._call(lambda: self._checked_adapter(path, read))

    def unload_adapter(self, adapter: AdapterVersion) -> None:
        """No request has it any more: give its memory back."""
        self._commands.put(_Call(lambda: self.backend.forget_adapter(adapter)))

    def in_work(self) -> Future[dict[str, int]]:
        """The thread's part of `LocalEngine.in_work`."""
        return self._call(
            lambda: {
                "waiting": len(self._waiting),
                "rows": len(self._rows) + len(self._parked),
                **self.backend.in_work(),
            }
        )

    def _call(self, work: Callable[[], T]) -> Future[T]:
        result: Future[T] = Future()
        self._commands.put(_Call(work, result))
        return result

    # The thread.

    def _run(self) -> None:
        try:
            with reading(self._settings.model):
                self._model = self.backend.load()
                try:
                    with self.backend.context():
                        self._check_numbers(None)
                except BaseException:
                    self.backend.unload()
                    raise
        except BaseException as error:  # noqa: BLE001 - it is raised again in `start`
            self._started.set_exception(error)
            return
        self._places = self.backend.max_rows
        self._started.set_result(self._model)
        try:
            with self.backend.context():
                while self._take_commands():
                    self._turn()
                    self._deliver()
        except BaseException as error:  # noqa: BLE001 - everybody who waits gets it
            _log.exception("the %s engine's thread can't go on", self._kind)
            failure = EngineBroken(
                f"the {self._kind} engine can't go on: {type(error).__name__}: {error}"
            )
            rows = (*self._rows, *self._parked)
            for job in dict.fromkeys([*(row.job for row in rows), *self._waiting]):
                self._send(job, failure)
            self._refuse(failure, until_stopped=True)
        else:
            self._refuse(EngineError(f"the {self._kind} engine is closed"), until_stopped=False)
        finally:
            self.backend.unload()

    def _refuse(self, failure: EngineError, *, until_stopped: bool) -> None:
        """After the end. Commands may still come in, up to the stop: none may wait for ever."""
        self._deliver()
        while until_stopped or not self._commands.empty():
            match self._commands.get():
                case Job() as job:
                    self._send(job, failure)
                    self._deliver()
                case _Call(result=result):
                    if result is not None and result.set_running_or_notify_cancel():
                        result.set_exception(failure)
                case None:
                    until_stopped = False

    def _take_commands(self) -> bool:
        """Carry out what has come in; sleeps while there is nothing else to do. False to stop."""
        idle = not (self._rows or self._parked or self._waiting)
        while True:
            try:
                command = self._commands.get(block=idle)
            except queue.Empty:
                return True
            idle = False
            match command:
                case Job():
                    self._waiting.append(command)
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
            result.set_exception(self._failure_of(error))

    def _turn(self) -> None:
        """Admit what waits and there is room for, then draw a token for every row."""
        while self._admit() and self.backend.reads_apart:
            self._pass()
        if self._rows:
            self._pass()

    # Who is let in.

    def _admit(self) -> bool:
        """Let rows in; those that were set back come before all others. Returns whether there are
        prompts to be read."""
        unread = [row for row in self._rows if row.reading]
        passed: list[Row] = []
        while self._parked or self._waiting:
            row = self._first_in_line()
            if row is None:
                continue
            # Logits are wanted from the last token before an unchecked or a new one on.
            known = row.ids[: len(row.ids) - row.unchecked - 1]
            prefix, row.fed = self.backend.find_prefix(row.job.adapter, known)
            if not self._parked and _is_about_to_be_read(row, known, unread):
                passed.append(row)
                self._waiting.popleft()
                continue
            # A request that is more than there is room for runs alone.
            if self._rows and not self.backend.room_for(row, self._rows, passed, self._places):
                break
            if not self.backend.joins(row, unread):
                break
            if self._parked:
                self._parked.popleft()
            else:
                self._waiting.popleft()
                row.cached = row.fed
            row.reading = True
            self.backend.enter(row, prefix)
            self._rows.append(row)
            unread.append(row)
        self._waiting.extendleft(row.job for row in reversed(passed))
        return bool(unread)

    def _first_in_line(self) -> Row | None:
        """None if its prompt cannot be made: then its request has failed."""
        if self._parked:
            row = self._parked[0]
        else:
            job = self._waiting[0]
            if not job.rows and not self._guarded(lambda: job.prepare(self._model), [job]):
                self._waiting.popleft()
                return None
            row = job.rows[0]
        row.place()
        return row

    # One pass.

    def _pass(self) -> None:
        """Feed rows, and draw a token for those that have none left to feed. If memory runs out,
        again with fewer rows."""
        while self._rows:
            feeds: dict[Row, int] = {}
            try:
                feeds = self.backend.plan(self._rows)
                logits = self.backend.step(feeds)
                ready, chosen = self._drawn(feeds, logits)
            except Exception as error:  # noqa: BLE001 - a model's code raises anything
                shortage = self.backend.shortage(error)
                if shortage is None:
                    self._fail_pass(feeds, self._failure_of(error))
                    return
            else:
                self._push_all(ready, chosen)
                return
            # Not within the except clause: the error's traceback holds what the pass allocated.
            self._back_off(shortage)

    def _drawn(
        self, feeds: Mapping[Row, int], logits: Any
    ) -> tuple[list[Row], list[Sampled | None]]:
        """Rows that have been fed all they have, with the next token of each, of the logits
        [sum of wanted, vocabulary] after a pass."""
        ready: list[Row] = []
        places: list[int] = []
        """The row of `logits` that each is drawn from."""
        ended: list[Row] = []
        place = 0
        for row, count in feeds.items():
            wanted = row.wanted(count)
            row.fed += count
            # The last one is for drawing, if nothing is left to be fed.
            checked = logits[place : place + (wanted if row.left else wanted - 1)]
            place += wanted
            if row.unchecked and not self._guarded(
                lambda row=row, checked=checked: row.take_over(checked), [row.job]
            ):
                continue
            if row.left:
                continue
            if row.finish_reason is not None:
                if self._guarded(lambda row=row: self._complete(row), [row.job]):
                    ended.append(row)
                continue
            siblings, row.siblings = row.siblings, []
            forked = self.backend.fork(row, siblings, self._places - len(self._rows))
            for sibling in forked:
                sibling.ids, sibling.fed, sibling.reading = list(row.ids), row.fed, True
            self._rows.extend(forked)
            self._parked.extend(siblings[len(forked) :])
            ready += [row, *forked]
            places += [place - 1] * (1 + len(forked))
        self._end(ended)
        if not ready:
            return [], []
        if places != list(range(logits.shape[0])):
            logits = logits[places]  # [ready, vocabulary]
        chosen = choose_tokens(
            logits,
            [row.allowed for row in ready],
            [row.sampling for row in ready],
            [len(row.output_ids) for row in ready],
        )
        return ready, chosen

    def _push_all(self, rows: Sequence[Row], chosen: Sequence[Sampled | None]) -> None:
        """Give each row its token. Finished rows leave, and so do all of a request whose grammar or
        numbers fail."""
        finished: list[Row] = []
        failed: dict[Job, EngineError] = {}
        for row, sampled in zip(rows, chosen, strict=True):
            row.job.generated += 1
            if row.job in failed:
                continue
            try:
                self._push(row, sampled)
            except Exception as error:  # noqa: BLE001 - a tokenizer's code raises anything
                failed[row.job] = self._failure_of(error)
                continue
            if row.finish_reason is not None:
                finished.append(row)
        self._end(finished)
        for job, failure in failed.items():
            self._fail([job], failure)

    def _push(self, row: Row, sampled: Sampled | None) -> None:
        """Give a row its token and send what comes of it. Raises EngineError if there is none for
        it (see `choose_tokens`) or its grammar cannot go on, and what `_complete` raises."""
        if sampled is None:
            raise EngineError(
                f"request {row.request.id}: the model's logits are not finite (NaN or infinity); "
                "try dtype = 'float32'"
            )
        delta = row.push(sampled)
        row.ids.append(sampled.token)
        row.reading = False
        if row.request.stream:
            self._send(row.job, delta)
        if row.finish_reason is not None:
            self._complete(row)

    def _complete(self, row: Row) -> None:
        self.backend.recompute_logprobs(row)
        self._send(row.job, row.completion())

    def _end(self, rows: Sequence[Row]) -> None:
        """These have ended. One row more is tried whenever as many have ended as there are
        places."""
        if not rows:
            return
        self.backend.finish(rows)
        self._rows = [row for row in self._rows if row not in rows]
        for _ in rows:
            self._ended += 1
            if self._ended >= self._places:
                self._places, self._ended = min(self._places + 1, self.backend.max_rows), 0

    # Who leaves early.

    def _abandon(self, job: Job) -> None:
        if job in self._waiting:
            self._waiting.remove(job)
        self.abandoned_tokens += job.generated
        self._remove([job])

    def _remove(self, jobs: Sequence[Job]) -> None:
        """Take the rows of these jobs out of work, and give back what they hold."""
        self._parked = deque(row for row in self._parked if row.job not in jobs)
        leaving = [row for row in self._rows if row.job in jobs]
        if leaving:
            # First: if giving back fails, the rows must not be taken for gone.
            self.backend.drop(leaving)
            self._rows = [row for row in self._rows if row.job not in jobs]

    def _fail(self, jobs: Sequence[Job], failure: EngineError) -> None:
        """End these jobs with an error."""
        self._remove(jobs)
        for job in jobs:
            self._send(job, failure)

    def _fail_pass(self, feeds: Mapping[Row, int], failure: EngineError) -> None:
        """End what was in a pass that failed, and what was lost with it."""
        rows = [*feeds, *self.backend.lost(self._rows)] if feeds else self._rows
        self._fail(list(dict.fromkeys(row.job for row in rows)), failure)

    def _guarded(self, work: Callable[[], None], jobs: Sequence[Job]) -> bool:
        """Run `work`; its failure ends these jobs and not the thread. True if it worked."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a model's or a tokenizer's code raises anything
            self._fail(jobs, self._failure_of(error))
            return False
        return True

    def _failure_of(self, error: Exception) -> EngineError:
        """What a requester is told of an exception."""
        if isinstance(error, EngineError):
            return error
        if self.backend.shortage(error) is not None:
            self.backend.release()
            failure = EngineError(
                "out of memory while decoding; lower max_concurrency or max_tokens of this pool",
                kind="unavailable",
                retryable=True,
            )
            failure.__cause__ = error
            return failure
        _log.error("the %s engine failed", self._kind, exc_info=error)
        return EngineError(f"the model failed: {type(error).__name__}: {error}")

    # Memory.

    def _back_off(self, shortage: Shortage) -> None:
        """Set rows back: those that were about to join, else the youngest ones."""
        self.backend.release()
        joining = [row for row in self._rows if row.reading]
        tried = sum(1 + len(row.siblings) for row in self._rows)
        jobs = list(dict.fromkeys(row.job for row in self._rows))
        if len(self._rows) == 1 or (len(jobs) == 1 and not jobs[0].begun):
            self._fail(jobs, shortage.alone)
            return
        by_age = self._by_age()
        if shortage.halve:
            self._places, self._ended = max(1, tried // 2), 0
            lost = self.backend.lost(self._rows)
            back = by_age if lost else joining or by_age[self._places :]
        else:
            back = by_age[-1:]
        self._set_back(back)
        # Memory may have run out behind the pass, in the choice: then all of a row is in memory,
        # and its last token is fed again, to the same place.
        for row in self._rows:
            row.fed = min(row.fed, len(row.ids) - 1)
        if shortage.halve:
            _log.warning(
                "%s: out of memory with %d rows of %s (%s): %d set back, "
                "at most %d at once for now",
                self._kind, tried, self._model.base, shortage.reason, tried - len(self._rows),
                self._places,
            )  # fmt: skip

    def _by_age(self) -> list[Row]:
        """Rows in work, the oldest first; of those of one request, the first to be let in."""
        return sorted(self._rows, key=lambda row: row.started)

    def _set_back(self, rows: Sequence[Row]) -> None:
        """Take rows out of work, the oldest first, to be let in again before all others."""
        self.backend.drop(rows)
        self._rows = [row for row in self._rows if row not in rows]
        for row in reversed(rows):
            job = row.job
            if job.begun and not row.unchecked:
                self._parked.appendleft(row)
                continue
            if row.unchecked:
                # Its grammar and its text stand in the midst of ids that are not its own yet.
                job.rows, job.generated = [], 0
            if job not in self._waiting:
                self._waiting.appendleft(job)

    # Scores, and numbers that are none.

    def _score(self, ids: list[int], adapter: AdapterVersion | None) -> list[float]:
        check_ids("score", ids, self._model)
        if len(ids) > self._model.max_context:
            raise context_overflow("score", len(ids), self._model.max_context)
        scores = self._scored(ids, adapter)
        if any(map(math.isnan, scores)):
            raise EngineError("score: the model's logits are not finite (NaN or infinity)")
        return scores

    def _scored(self, ids: Sequence[int], adapter: AdapterVersion | None) -> list[float]:
        while True:
            try:
                return self.backend.score(ids, adapter)
            except Exception as error:
                shortage = self.backend.shortage(error)
                if shortage is None or shortage.halve:
                    raise
                if len(self._rows) < 2:
                    raise shortage.alone from error
            self._set_back(self._by_age()[-1:])

    def _checked_adapter(self, path: str, read: Any) -> Any:
        weights = self.backend.load_adapter(read)
        adapter = AdapterVersion(path, 0, weights)
        try:
            self._check_numbers(adapter)
        except BaseException:
            self.backend.forget_adapter(adapter)
            raise
        return weights

    def _check_numbers(self, adapter: AdapterVersion | None) -> None:
        """Let the model read two tokens: weights with a NaN or an infinity in them are refused when
        they are loaded, before the first request fails of them. Raises EngineError."""
        if any(map(math.isnan, self._scored([0, 1], adapter))):
            name = self._settings.model if adapter is None else adapter.name
            raise unusable(
                name,
                "what comes of its weights is not finite (NaN or infinity): they are damaged, or "
                "too large for the dtype; try dtype = 'float32'",
                "model" if adapter is None else "adapter",
            )

    # Events.

    def _send(self, job: Job, event: AnswerEvent | EngineError) -> None:
        self._outbox.append((job, event))

    def _deliver(self) -> None:
        """One wake-up of the event loop per turn, however many rows have news."""
        if not self._outbox:
            return
        events, self._outbox = self._outbox, []
        try:
            self._loop.call_soon_threadsafe(_put, events)
        except RuntimeError:
            _log.warning(
                "%d events of the %s engine came after the loop's end", len(events), self._kind
            )


def _put(events: list[tuple[Job, AnswerEvent | EngineError]]) -> None:
    for job, event in events:
        job.events.put_nowait(event)


def _is_about_to_be_read(row: Row, ids: Sequence[int], unread: Sequence[Row]) -> bool:
    """Whether so much more of these ids, with which `row` begins, will be in memory when the others
    have been read."""
    return any(
        other.job.adapter is row.job.adapter
        and other.left > 1
        and shares_more(other.ids, ids, row.fed + WORTH_SHARING - 1)
        for other in unread
    )
