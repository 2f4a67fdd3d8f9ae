"""Decides which rows run: admits requests, plans passes, draws tokens, preempts rows.

Continuous batching: a row leaves with its last token, and a waiting request joins before the next
pass. First come, first served, with one exception: a prompt that shares its beginning with one that
is about to be read waits for those keys and values, and requests after it may pass it.

When memory runs out, rows are preempted, and read again when others have finished. The oldest row
always continues, so every request finishes; only a request that does not fit on its own is refused.

The thread that owns the model also owns the scheduler (see `ModelThread`).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.backend import (
    WORTH_SHARING,
    Backend,
    Loaded,
    Shortage,
    shares_more,
)
from loopline.workers.engines.local.row import Job, Row, check_ids
from loopline.workers.engines.local.sampling import Sampled, choose_tokens
from loopline.workers.engines.protocol import AnswerEvent, EngineError, Occupancy, context_overflow

_log = logging.getLogger(__name__)


class Scheduler:
    """The requests of one model. `turn` makes at least one pass and puts the resulting events into
    `outbox`."""

    def __init__(self, backend: Backend[Loaded], model: Loaded) -> None:
        self._backend = backend
        self._model = model
        # A request's rows are in exactly one of these: waiting for admission, running, preempted.
        self._waiting: deque[Job] = deque()
        self._rows: list[Row] = []
        self._parked: deque[Row] = deque()
        """Preempted rows, oldest first; they precede all waiting requests."""
        self._places = backend.max_rows
        """Rows that may run now: fewer than the backend's maximum for a while after memory ran
        out."""
        self._ended = 0
        """Rows that have finished since the number of places last changed."""
        self.outbox: list[tuple[Job, AnswerEvent | EngineError]] = []
        self.abandoned_tokens = 0
        """Tokens of requests that were abandoned."""

    @property
    def idle(self) -> bool:
        return not (self._rows or self._parked or self._waiting)

    def in_use(self) -> dict[str, int]:
        """The thread's part of `LocalEngine.in_use`."""
        return {
            "waiting": len(self._waiting),
            "rows": len(self._rows) + len(self._parked),
            **self._backend.in_use(),
        }

    def occupancy(self) -> Occupancy:
        """See `InProcessEngine.occupancy`: it copies the rows before it counts."""
        rows = list(self._rows)
        return Occupancy(
            rows=len(rows),
            waiting=len(self._waiting) + len(self._parked),
            kv_tokens=sum(row.fed for row in rows),
            kv_capacity=self._backend.kv_capacity,
        )

    def add(self, job: Job) -> None:
        self._waiting.append(job)

    def abandon(self, job: Job) -> None:
        """Drop a job that is no longer awaited: it need not be finished."""
        # Releasing may need memory itself, and so may fail.
        self._run_guarded(lambda: self._abandon(job), [job])

    def fail_all(self, failure: EngineError) -> None:
        """End all requests with this error: none can continue. The model is not touched."""
        rows = (*self._rows, *self._parked)
        for job in dict.fromkeys([*(row.job for row in rows), *self._waiting]):
            self._send(job, failure)

    def turn(self) -> None:
        """Admit waiting requests while there is room, then draw a token for every row."""
        while self._admit() and self._backend.reads_apart:
            self._pass()
        if self._rows:
            self._pass()

    # Admission.

    def _admit(self) -> bool:
        """Admit rows, preempted rows first. Returns whether there are prompts to read."""
        unread = [row for row in self._rows if row.reading]
        passed: list[Row] = []
        while self._parked or self._waiting:
            row = self._next_row()
            if row is None:
                continue
            # Logits are needed from the token before the first unchecked or new one.
            context_ids = row.ids[: len(row.ids) - row.unchecked - 1]
            prefix, row.fed = self._backend.find_prefix(row.job.adapter, context_ids)
            if not self._parked and _shares_unread_prefix(row, context_ids, unread):
                passed.append(row)
                self._waiting.popleft()
                continue
            # A request that is too large for the room runs alone.
            if self._rows and not self._backend.room_for(row, self._rows, passed, self._places):
                break
            if not self._backend.joins(row, unread):
                break
            if self._parked:
                self._parked.popleft()
            else:
                self._waiting.popleft()
                row.cached = row.fed
            row.reading = True
            self._backend.enter(row, prefix)
            self._rows.append(row)
            unread.append(row)
        self._waiting.extendleft(row.job for row in reversed(passed))
        return bool(unread)

    def _next_row(self) -> Row | None:
        """Return the next row to admit; None if its prompt cannot be built, in which case its
        request has failed."""
        if self._parked:
            row = self._parked[0]
        else:
            job = self._waiting[0]
            if not job.rows and not self._run_guarded(lambda: job.prepare(self._model), [job]):
                self._waiting.popleft()
                return None
            row = job.rows[0]
        row.place()
        return row

    # One pass.

    def _pass(self) -> None:
        """Feed rows, and draw a token for those with none left to feed. If memory runs out, retry
        with fewer rows."""
        while self._rows:
            feeds: dict[Row, int] = {}
            try:
                feeds = self._backend.plan(self._rows)
                logits = self._backend.step(feeds)
                ready, samples = self._draw_next_tokens(feeds, logits)
            except Exception as error:  # noqa: BLE001 - a model's code raises anything
                shortage = self._backend.shortage(error)
                if shortage is None:
                    self._fail_pass(feeds, self.failure_of(error))
                    return
            else:
                self._push_all(ready, samples)
                return
            # Not inside the except clause: the error's traceback keeps the pass's memory alive.
            self._back_off(shortage)

    def _draw_next_tokens(
        self, feeds: Mapping[Row, int], logits: Any
    ) -> tuple[list[Row], list[Sampled | None]]:
        """Return the rows that have been fed completely, with the next token of each, from the
        logits [sum of wanted, vocabulary] after a pass."""
        ready: list[Row] = []
        places: list[int] = []
        """Row of `logits` that each ready row is drawn from."""
        ended: list[Row] = []
        place = 0
        for row, count in feeds.items():
            wanted = row.wanted(count)
            row.fed += count
            place += wanted
            if row.unchecked:
                # The last logits are for drawing if nothing is left to feed.
                before = logits[place - wanted : place if row.left else place - 1]
                if not self._run_guarded(
                    lambda row=row, before=before: row.take_over(before), [row.job]
                ):
                    continue
            if row.left:
                continue
            if row.finish_reason is not None:
                if self._run_guarded(lambda row=row: self._complete(row), [row.job]):
                    ended.append(row)
                continue
            siblings, row.siblings = row.siblings, []
            forked = self._backend.fork(row, siblings, self._places - len(self._rows))
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
        for place, row in enumerate(ready):
            if row.request.top_logprobs:
                row.store_likeliest(logits[place : place + 1])
        samples = choose_tokens(
            logits,
            [row.allowed for row in ready],
            [row.sampling for row in ready],
            [row.output_ids for row in ready],
        )
        return ready, samples

    def _push_all(self, rows: Sequence[Row], samples: Sequence[Sampled | None]) -> None:
        """Give each row its token. Finished rows leave, and so do all rows of a request whose
        grammar or numbers fail."""
        finished: list[Row] = []
        failed: dict[Job, EngineError] = {}
        for row, sampled in zip(rows, samples, strict=True):
            row.job.generated += 1
            if row.job in failed:
                continue
            try:
                self._push(row, sampled)
            except Exception as error:  # noqa: BLE001 - a tokenizer's code raises anything
                failed[row.job] = self.failure_of(error)
                continue
            if row.finish_reason is not None:
                finished.append(row)
        self._end(self._deliver(finished, failed))
        for job, failure in failed.items():
            self._fail([job], failure)

    def _deliver(self, finished: Sequence[Row], failed: dict[Job, EngineError]) -> list[Row]:
        """Send the finished rows of requests that have not `failed`. Requests whose
        log-probabilities can't be computed are added to `failed`. Returns the rows whose delivery
        did not fail."""
        if len(finished) > 1:
            # If they don't fit together, or one of them fails, each is tried alone.
            with suppress(Exception):
                self._backend.recompute_logprobs(finished)
        ended: list[Row] = []
        for row in finished:
            if row.job not in failed:
                try:
                    self._complete(row)
                except Exception as error:  # noqa: BLE001 - a tokenizer's code raises anything
                    failed[row.job] = self.failure_of(error)
                    continue
            ended.append(row)
        return ended

    def _push(self, row: Row, sampled: Sampled | None) -> None:
        """Give a row its token and send the resulting text. Raises EngineError if the row has no
        token (see `choose_tokens`) or its grammar cannot continue."""
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

    def _complete(self, row: Row) -> None:
        if not row.rescored:
            self._backend.recompute_logprobs([row])
        self._send(row.job, row.completion())

    def _end(self, rows: Sequence[Row]) -> None:
        """Release finished rows. Each time as many have finished as there are places, one more
        place is tried."""
        if not rows:
            return
        self._backend.finish(rows)
        self._rows = [row for row in self._rows if row not in rows]
        for _ in rows:
            self._ended += 1
            if self._ended >= self._places:
                self._places, self._ended = min(self._places + 1, self._backend.max_rows), 0

    # Rows that leave early.

    def _abandon(self, job: Job) -> None:
        if job in self._waiting:
            self._waiting.remove(job)
        self.abandoned_tokens += job.generated
        self._remove([job])

    def _remove(self, jobs: Sequence[Job]) -> None:
        """Remove the rows of these jobs and release their resources."""
        self._parked = deque(row for row in self._parked if row.job not in jobs)
        leaving = [row for row in self._rows if row.job in jobs]
        if leaving:
            # First: if releasing fails, the rows must not be counted as gone.
            self._backend.drop(leaving)
            self._rows = [row for row in self._rows if row.job not in jobs]

    def _fail(self, jobs: Sequence[Job], failure: EngineError) -> None:
        """End these jobs with an error."""
        self._remove(jobs)
        for job in jobs:
            self._send(job, failure)

    def _fail_pass(self, feeds: Mapping[Row, int], failure: EngineError) -> None:
        """End the rows of a failed pass, and those that were lost with it."""
        rows = [*feeds, *self._backend.lost(self._rows)] if feeds else self._rows
        self._fail(list(dict.fromkeys(row.job for row in rows)), failure)

    def _run_guarded(self, work: Callable[[], None], jobs: Sequence[Job]) -> bool:
        """Run `work`; a failure ends these jobs, not the thread. True on success."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a model's or a tokenizer's code raises anything
            self._fail(jobs, self.failure_of(error))
            return False
        return True

    def failure_of(self, error: Exception) -> EngineError:
        """Convert any exception into the error that its request ends with."""
        if isinstance(error, EngineError):
            return error
        if self._backend.shortage(error) is not None:
            self._backend.release()
            failure = EngineError(
                "out of memory while decoding; lower max_concurrency or max_tokens of this pool",
                kind="unavailable",
                retryable=True,
            )
            failure.__cause__ = error
            return failure
        _log.error("the %s engine failed", self._backend.kind, exc_info=error)
        return EngineError(f"the model failed: {type(error).__name__}: {error}")

    # Memory.

    def _back_off(self, shortage: Shortage) -> None:
        """Preempt rows: those that were about to join, otherwise the youngest ones."""
        self._backend.release()
        joining = [row for row in self._rows if row.reading]
        row_count = sum(1 + len(row.siblings) for row in self._rows)
        jobs = list(dict.fromkeys(row.job for row in self._rows))
        if len(self._rows) == 1 or (len(jobs) == 1 and not jobs[0].begun):
            self._fail(jobs, shortage.alone)
            return
        by_age = self._oldest_first()
        if shortage.halve:
            self._places, self._ended = max(1, row_count // 2), 0
            lost = self._backend.lost(self._rows)
            preempted = by_age if lost else joining or by_age[self._places :]
        else:
            preempted = by_age[-1:]
        self._preempt(preempted)
        # Memory may have run out after the pass, during the choice. Then all of a row is in memory,
        # and its last token is fed again at the same position.
        for row in self._rows:
            row.fed = min(row.fed, len(row.ids) - 1)
        if shortage.halve:
            _log.warning(
                "%s: out of memory with %d rows of %s (%s): %d preempted, "
                "at most %d at once for now",
                self._backend.kind, row_count, self._model.base, shortage.reason,
                row_count - len(self._rows), self._places,
            )  # fmt: skip

    def _oldest_first(self) -> list[Row]:
        """Running rows, oldest first."""
        return sorted(self._rows, key=lambda row: row.started)

    def _preempt(self, rows: Sequence[Row]) -> None:
        """Preempt running rows, given oldest first; they are admitted again before all others."""
        self._backend.drop(rows)
        self._rows = [row for row in self._rows if row not in rows]
        for row in reversed(rows):
            job = row.job
            if job.begun and not row.unchecked:
                self._parked.appendleft(row)
                continue
            if row.unchecked:
                # Its grammar and its text are in the middle of the ids to continue from.
                job.rows, job.generated = [], 0
            if job not in self._waiting:
                self._waiting.appendleft(job)

    # Scores.

    def score(self, ids: list[int], adapter: AdapterVersion | None) -> list[float]:
        """See `Engine.score`."""
        check_ids("score", ids, self._model)
        if len(ids) > self._model.max_context:
            raise context_overflow("score", len(ids), self._model.max_context)
        scores = self.raw_scores(ids, adapter)
        if any(map(math.isnan, scores)):
            raise EngineError("score: the model's logits are not finite (NaN or infinity)")
        return scores

    def raw_scores(self, ids: Sequence[int], adapter: AdapterVersion | None) -> list[float]:
        """See `Engine.score`, unchecked; rows are preempted if memory runs out."""
        while True:
            try:
                return self._backend.score(ids, adapter)
            except Exception as error:
                shortage = self._backend.shortage(error)
                if shortage is None or shortage.halve:
                    raise
                if len(self._rows) < 2:
                    raise shortage.alone from error
            self._preempt(self._oldest_first()[-1:])

    def _send(self, job: Job, event: AnswerEvent | EngineError) -> None:
        self.outbox.append((job, event))


def _shares_unread_prefix(row: Row, ids: Sequence[int], unread: Sequence[Row]) -> bool:
    """Whether reading the other rows will put enough more of these ids, the beginning of `row`,
    into memory to be worth waiting for."""
    return any(
        other.job.adapter is row.job.adapter
        and other.left > 1
        and shares_more(other.ids, ids, row.fed + WORTH_SHARING - 1)
        for other in unread
    )
