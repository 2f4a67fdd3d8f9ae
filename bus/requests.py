"""Requests: ask a pool of workers, wait for the answer, and pay once.

One inbox stream per process and shard receives every reply and every notice that a run has ended. A
request's idempotency key makes it one piece of work, however often a retried step asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from typing import Any, cast
from weakref import WeakValueDictionary

import structlog
from pydantic import BaseModel

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.connection import OUTAGE, pause_before, retry_during_outage
from loopline.bus.delivery import REQUEST_LIFE_MS
from loopline.bus.envelope import Envelope
from loopline.bus.errors import BackgroundEnded, DeadlineExceeded, MessageTooLarge, RunEnded
from loopline.bus.keys import INBOX_LIFE_MS, Shard
from loopline.bus.replies import Reply, answer_of
from loopline.bus.run_state import RunState

log = structlog.get_logger("loopline.bus.requests")

CHECK_SECONDS = 5.0
"""Seconds after which a waiter checks for itself: a notice can be lost with its inbox, in a flush
or after ten minutes of silence."""

DELETED_AT_ONCE = 32
MOST_READ_BYTES = 2**20
"""Bytes of read mail that are deleted in one batch; fewer if no more mail arrives."""


class RunEnd(asyncio.Event):
    """The end of a run."""

    state: RunState | None = None
    """The ended run, if the waiting process itself ended it."""
    prepare: Callable[[RunState], Any] | None = None
    """Computes the waiter's result from the ended run. It is called while the commit that ends the
    run is being sent; the result is used if the commit is applied."""
    _prepared: tuple[RunState, Any] | None = None

    @contextlib.contextmanager
    def preparing(self, prepare: Callable[[RunState], Any]) -> Generator[None]:
        """Set `prepare` for the block. It often refers to an object that has this event: it is not
        kept, since the two would then stay in memory until the garbage collector runs."""
        self.prepare = prepare
        try:
            yield
        finally:
            self.prepare = None

    def foresee(self, state: RunState) -> None:
        """Prepare for the run to end in this state; it may still continue."""
        if self.prepare is not None and not self.is_set():
            # If it raises, it raises again for a caller without a prepared result.
            with contextlib.suppress(Exception):
                self._prepared = state, self.prepare(state)

    @property
    def prepared(self) -> tuple[Any] | None:
        """The result of `prepare` for the state in which the run ended; None if there is none."""
        if self._prepared is None or self._prepared[0] is not self.state:
            return None
        return (self._prepared[1],)


class Inbox:
    """This process's mail: replies to requests, ends of runs. Start it before asking."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._replies: dict[str, set[asyncio.Future[Reply]]] = {}
        self._steps: dict[str, int] = {}
        """Number of waiters by key that are steps, which commit the answers they get."""
        self._ends: WeakValueDictionary[str, RunEnd] = WeakValueDictionary()
        self._readers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Inbox:
        self.bus.background.on_end(self._fail)
        self._readers = [
            self.bus.background.start(self._read(shard), name=f"inbox-{shard.index}")
            for shard in self.bus.keys.all_shards()
        ]
        self.bus.local.open(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.bus.local.close(self)
        await self.bus.background.stop(self._readers)
        for shard in self.bus.keys.all_shards():
            with contextlib.suppress(*OUTAGE):  # otherwise it expires by itself
                await self.bus.redis.delete(self.key(shard))

    def key(self, shard: Shard) -> str:
        return shard.inbox(self.bus.process)

    async def request(
        self, stream: str, envelope: Envelope, *, committed_with: bool = False
    ) -> bytes:
        """Ask a pool as `ask` does, and return the answer's bytes."""
        return (await self.ask(stream, envelope, committed_with=committed_with)).body

    async def ask(
        self,
        stream: str,
        envelope: Envelope,
        *,
        committed_with: bool = False,
        record: BaseModel | None = None,
    ) -> Reply:
        """Ask a pool. `record`: the object that the envelope's payload was serialized from, so a
        pool in this process need not parse it again.

        `committed_with`: the answer leads only to requests and the commit of the step that asks.
        Then an answer from this process arrives before the bus has it, and the commit stores it
        first: see `Committer.reply_later`.

        Raises `RequestError` if the answer is an error, `DeadlineExceeded` after the envelope's
        deadline (the work may still finish and be stored), `MessageTooLarge`, `RunEnded` if the
        step is committed or its run has ended and so needs no answer, `BackgroundEnded` if this
        process's mail is no longer read.
        """
        body = envelope.to_json()
        limit = self.bus.settings.max_message_bytes
        if len(body) > limit:
            raise MessageTooLarge(f"request of {len(body)} bytes; the limit is {limit}")
        shard = self.bus.keys.shard_of(envelope.run_id)
        key = envelope.reply_key
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        # Two steps of one process may wait for one key: a retry alongside its abandoned first
        # attempt.
        waiting = self._replies.setdefault(key, set())
        waiting.add(future)
        if committed_with:
            self._steps[key] = self._steps.get(key, 0) + 1
        keys = [
            shard.request(key),
            shard.work(stream),
            self.key(shard),
            shard.run(envelope.run_id),
        ]
        args: list[scripts.Value] = [body, REQUEST_LIFE_MS, key, envelope.guard]
        try:
            await self.bus.committer(shard).give_replies(envelope)
            while True:
                self.bus.background.check()
                remaining = self.bus.clock.left(envelope.deadline)
                if remaining <= 0:
                    raise DeadlineExceeded(f"request {key}: no answer by its deadline")
                answer = await self._ask(shard, stream, envelope, keys, args, record)
                if answer[0] == b"done":
                    return Reply(answer_of(answer[1]))
                if answer[0] == b"over":
                    raise RunEnded(
                        f"request {key}: its step is committed, its run has ended, or Redis does"
                        " not have the run"
                    )
                # Not `wait_for`: on Python 3.11 it loses a cancellation that coincides with the
                # reply.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(CHECK_SECONDS, remaining + 0.05)):
                        reply = await asyncio.shield(future)
                        answer_of(reply.body)
                        return reply
        finally:
            waiting.discard(future)
            if not waiting:
                self._replies.pop(key, None)
                self._steps.pop(key, None)

    async def _ask(
        self,
        shard: Shard,
        stream: str,
        envelope: Envelope,
        keys: list[str],
        args: list[scripts.Value],
        record: BaseModel | None,
    ) -> list[Any]:
        start = self.bus.local.starting.get(envelope.run_id)
        if start is not None:
            eager_answer = await start.ask(stream, envelope, keys, args, record)
            if eager_answer is not None:
                return eager_answer
        with self.bus.local.reading(shard, [stream]) as reads:
            answer = await retry_during_outage(
                "request",
                lambda: scripts.call(self.bus.redis, "request", keys, [*args, *reads.names]),
            )
            if len(answer) == 3:
                deadline = int(answer[1] or 1000 * envelope.deadline) / 1000
                state = RunState(envelope.run_id, "active", b"", (), deadline=deadline)
                reads.take([answer[2]], [cast("bytes", args[0])], state)
        return answer

    def expect_end(self, run_id: str) -> RunEnd:
        """An event that is set once the run has ended, as long as its caller holds it."""
        end = self._ends.get(run_id)
        if end is None:
            end = self._ends[run_id] = RunEnd()
        return end

    async def wait_ended(self, run_id: str, within: float = 0.0) -> None:
        """Return when the run has ended (or is unknown), at the latest shortly after its deadline.
        Admit the run with `notify=inbox.key(shard)`.

        A caller that called `expect_end` before it admitted the run knows that the run is active;
        for the first `within` seconds this only waits, then it checks the run. Raises
        `BackgroundEnded` if this process's mail is no longer read.
        """
        end = self.expect_end(run_id)
        await self._wait_for(end, min(CHECK_SECONDS, within))
        while not end.is_set():
            if not await self.bus.enforce_deadline(run_id):
                return
            deadline = await self.bus.deadline_of(run_id)
            remaining = CHECK_SECONDS if deadline is None else self.bus.clock.left(deadline)
            await self._wait_for(end, min(CHECK_SECONDS, max(remaining, 0.4) + 0.1))

    async def _wait_for(self, end: RunEnd, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await end.wait()
        self.bus.background.check()

    def _fail(self, error: BackgroundEnded) -> None:
        """Notify all waiters at once."""
        for waiting in self._replies.values():
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
        for end in list(self._ends.values()):
            end.set()

    async def _read(self, shard: Shard) -> None:
        key, last, failures = self.key(shard), "0-0", 0
        read: list[bytes] = []
        """Entries to delete."""
        size = 0
        block = int(self.bus.settings.block_seconds * 1000)
        while True:
            try:
                if failures and read:
                    # The stream is read again from the start: delete entries that were already
                    # delivered.
                    await self.bus.redis.xdel(key, *read)
                    read, size = [], 0
                streams = await self.bus.blocking.xread({key: last}, count=500, block=block)
                if streams:
                    entries = streams[0][1]
                    last = entries[-1][0].decode()
                    for entry, fields in entries:
                        read.append(entry)
                        size += len(fields.get(b"reply", b""))
                        try:
                            self._deliver(fields)
                        except (KeyError, UnicodeDecodeError) as error:
                            # Not ours: the mail after it must still arrive.
                            log.warning("unreadable mail", entry=entry, error=repr(error))
                # Callers that wait for a reply would wait for this, too, so entries are deleted
                # rarely.
                if read and (
                    not streams or len(read) >= DELETED_AT_ONCE or size >= MOST_READ_BYTES
                ):
                    await self.bus.redis.xdel(key, *read)
                    read, size = [], 0
                if not streams:
                    await self.bus.redis.pexpire(key, INBOX_LIFE_MS)
                failures = 0
            except OUTAGE as error:
                failures += 1
                if failures & (failures - 1) == 0:
                    log.warning("inbox unreadable", error=str(error), tries=failures)
                # A server that restarted without its data starts its ids again.
                last = "0-0"
                await asyncio.sleep(pause_before(failures))

    def _deliver(self, fields: dict[bytes, bytes]) -> None:
        if fields[b"type"] == b"reply":
            self.on_reply(fields[b"key"].decode(), Reply(fields[b"reply"]))
        elif fields[b"type"] == b"ended":
            self.on_end(fields[b"run_id"].decode(), None)

    def waits_for(self, key: str) -> bool:
        waiting = self._replies.get(key)
        return bool(waiting) and len(waiting) == self._steps.get(key)

    def on_reply(self, key: str, reply: Reply) -> None:
        for future in self._replies.get(key, ()):
            if not future.done():
                future.set_result(reply)

    def on_expected_end(self, state: RunState) -> None:
        end = self._ends.get(state.run_id)
        if end is not None and end.prepare is not None:
            # Two turns of the loop from now, when the commit has been sent.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, end.foresee, state)

    def on_end(self, run_id: str, state: RunState | None) -> None:
        end = self._ends.get(run_id)
        if end is not None:
            end.state = end.state or state
            end.set()
