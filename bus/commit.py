"""The step commit: all changes of a finished step, applied atomically.

Commits that are submitted while one batch is being sent form the next batch: one script call
settles many independent deliveries. Batching provides the throughput; each delivery still has its
own lease check and its own result.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from redis.asyncio import Redis

from loopline.bus import scripts
from loopline.bus.connection import retry_during_outage
from loopline.bus.envelope import Envelope
from loopline.bus.errors import (
    BusError,
    LeaseLost,
    MessageTooLarge,
    Retry,
    RunEnded,
    run_ended,
)
from loopline.bus.keys import MAX_WAIT_SECONDS, SIGNAL_NAME, Shard
from loopline.bus.lease import Lease
from loopline.bus.settings import BusSettings

MAX_BATCH = 64
"""Maximum number of commits per script call, which blocks Redis: 64 take about 2 ms."""


REPLY_WAIT_SECONDS = 0.5
"""Longest time that a reply waits for the commit of the step that got it within this process."""

FORGOTTEN_SECONDS = 3_600.0
"""Seconds after which it no longer matters whether a reply that was sent alone counts: longer than
a step waits for its commit."""

LARGEST = 2**53
"""Largest exact integer: Lua's numbers are doubles."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An envelope and the work stream (by name) that it goes to."""

    stream: str
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Join:
    """Opens a join: `continuation` is published when `branches` commits have arrived."""

    id: str
    branches: int
    continuation: Outgoing


@dataclass(frozen=True, slots=True)
class Wait:
    """Makes the run wait: `continuation` is published once, when the signal arrives or the time is
    up."""

    signal: str
    continuation: Outgoing
    fills: str
    """Field of the continuation's payload that records which of the two happened; its value here is
    `None`."""
    seconds: float
    """Longest wait in seconds."""

    def envelope_parts(self) -> tuple[bytes, bytes]:
        """The continuation's envelope as JSON, split into the parts around that field's value."""
        envelope, mark = self.continuation.envelope, secrets.token_hex(16)
        payload = {**envelope.payload, self.fills: mark}
        body = envelope.model_copy(update={"payload": payload}).to_json()
        head, _, tail = body.partition(f'"{mark}"'.encode())
        return head, tail


@dataclass(frozen=True, slots=True)
class Finish:
    """Ends the run."""

    outcome: str
    answer: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StepCommit:
    """Everything that one finished step changes."""

    step: bytes
    """The step's record, JSON."""
    tokens: int = 0
    micro_dollars: int = 0
    publish: tuple[Outgoing, ...] = ()
    join: Join | None = None
    arrive: str = ""
    """Id of the join that this branch arrives at."""
    wait: Wait | None = None
    finish: Finish | None = None
    record: object = field(default=None, compare=False, repr=False)
    """The record that `step` was serialized from."""


def check_signal_name(name: str) -> None:
    """Raise ValueError for an invalid name."""
    if not re.fullmatch(SIGNAL_NAME, name):
        raise ValueError(
            f"{name[:80]!r} is not the name of a signal: up to 64 letters, digits and _ . : -"
        )


def check_wait_seconds(seconds: float) -> float:
    """Check the duration of a wait, and return it. Raises ValueError."""
    if not 0 < seconds <= MAX_WAIT_SECONDS:
        raise ValueError(
            f"a run can wait for at most {MAX_WAIT_SECONDS:,} s (a year), not {seconds:g} s"
        )
    return seconds


def _check_numbers(commit: StepCommit) -> None:
    """Raise ValueError for an invalid number: the script can't undo its earlier writes."""
    for name, value in (("tokens", commit.tokens), ("micro_dollars", commit.micro_dollars)):
        if type(value) is not int or not 0 <= value < LARGEST:
            raise ValueError(f"{name} must be a whole number from 0 to 2**53, not {value!r}")
    if commit.join is not None and commit.join.branches < 1:
        raise ValueError(f"join {commit.join.id!r} waits for {commit.join.branches} branches")
    if commit.wait is not None:
        check_signal_name(commit.wait.signal)
        check_wait_seconds(commit.wait.seconds)
    if commit.finish is not None:
        if not commit.finish.outcome:
            raise ValueError("the outcome of a run must not be empty")
        if commit.publish or commit.join is not None or commit.arrive or commit.wait is not None:
            raise ValueError("a step that ends its run can't hand over to another")


def _check_texts(commit: StepCommit) -> None:
    """Raise ValueError for text that UTF-8 can't encode: it would fail the whole batch."""
    texts = [("arrive", commit.arrive)]
    texts += [("publish.stream", outgoing.stream) for outgoing in commit.publish]
    if commit.join is not None:
        texts += [
            ("join.id", commit.join.id),
            ("join.continuation.stream", commit.join.continuation.stream),
        ]
    if commit.wait is not None:
        texts.append(("wait.continuation.stream", commit.wait.continuation.stream))
    if commit.finish is not None:
        texts += [
            ("finish.outcome", commit.finish.outcome),
            ("finish.answer", commit.finish.answer),
        ]
    for name, text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{name}: half a surrogate pair at character {error.start} of {text[:60]!r}, which "
                "no message can carry; encode it with errors='replace'"
            ) from None


@dataclass(slots=True)
class _PendingReply:
    keys: list[str]
    args: list[scripts.Value]
    done: asyncio.Future[str]
    timer: asyncio.TimerHandle | None = None
    """Timer that sends the reply without a commit."""


@dataclass(slots=True)
class _PendingCommit:
    keys: list[str]
    args: list[scripts.Value]
    done: asyncio.Future[str]
    replies: list[_PendingReply] = field(default_factory=list[_PendingReply])
    """Replies that the step received before they were sent."""
    on_word: Callable[[str], None] | None = None


class Committer:
    """Sends the commits of one process and one shard, in batches, and repeats them during
    outages."""

    def __init__(self, redis: Redis, settings: BusSettings, shard: Shard, inbox: str) -> None:
        """`inbox`: the inbox of this process, which is notified here of runs that a commit ends."""
        self._redis = redis
        self._inbox = inbox
        self._settings = settings
        self._shard = shard
        self._queue: deque[_PendingCommit] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._replies: dict[tuple[str, str], list[_PendingReply]] = {}
        """Pending replies by the run and guard of the step that received them."""
        self._sent_alone: dict[tuple[str, str], list[_PendingReply]] = {}
        """Replies that steps received and that were sent before the commit, by run and guard: the
        commit is applied only if they count."""
        self._replying: set[asyncio.Task[None]] = set()

    async def reply(self, keys: list[str], args: list[scripts.Value]) -> str:
        """Send one reply; return the answer of `reply.lua`."""
        word: bytes = await retry_during_outage(
            "reply", lambda: scripts.call(self._redis, "reply", keys, args)
        )
        return word.decode()

    def reply_later(
        self, envelope: Envelope, keys: list[str], args: list[scripts.Value]
    ) -> asyncio.Future[str]:
        """Reply together with the commit of the step that asked, or alone if that takes too long.
        The future's result is the answer of `reply.lua`."""
        loop = asyncio.get_running_loop()
        reply = _PendingReply(keys, args, loop.create_future())
        step = (envelope.run_id, envelope.guard)
        self._replies.setdefault(step, []).append(reply)
        reply.timer = loop.call_later(REPLY_WAIT_SECONDS, self._reply_alone, step, reply)
        return reply.done

    async def give_replies(self, envelope: Envelope) -> None:
        """Send the replies that a step has received before it makes further requests based on them.
        Raises `Retry` if a reply does not count."""
        step = (envelope.run_id, envelope.guard)
        while replies := self._replies.get(step):
            reply = replies[0]
            self._reply_alone(step, reply)
            if await reply.done not in ("ok", "already"):
                raise Retry("another worker has the step's request", delay=0.0)

    def _reply_alone(self, step: tuple[str, str], reply: _PendingReply) -> None:
        waiting = self._replies.get(step, [])
        if reply in waiting:
            waiting.remove(reply)
            if not waiting:
                del self._replies[step]
            self._sent_alone.setdefault(step, []).append(reply)
            task = asyncio.create_task(self._reply(step, reply), name="reply")
            self._replying.add(task)
            task.add_done_callback(self._replying.discard)

    def _forget(self, step: tuple[str, str], reply: _PendingReply) -> None:
        replies = self._sent_alone.get(step, [])
        if reply in replies:
            replies.remove(reply)
            if not replies:
                del self._sent_alone[step]

    async def _require_counted(self, envelope: Envelope) -> None:
        """Raises `Retry` for a step that received a reply which turned out not to count: it was
        sent alone, and another worker had the request by then."""
        for reply in self._sent_alone.pop((envelope.run_id, envelope.guard), []):
            if await reply.done not in ("ok", "already"):
                raise Retry("another worker has the step's request", delay=0.0)

    async def _reply(self, step: tuple[str, str], reply: _PendingReply) -> None:
        forgotten = FORGOTTEN_SECONDS
        try:
            word = await self.reply(reply.keys, reply.args)
        except Exception as error:  # noqa: BLE001 - the caller is told
            _fail(reply.done, error)
        else:
            _tell(reply.done, word)
            if word in ("ok", "already"):
                forgotten = 0.0
        asyncio.get_running_loop().call_later(forgotten, self._forget, step, reply)

    async def commit(
        self,
        lease: Lease,
        envelope: Envelope,
        commit: StepCommit,
        now_ms: int,
        on_word: Callable[[str], None] | None = None,
    ) -> bool:
        """Apply a commit; True if it succeeded but used up the run's budget. `now_ms` becomes the
        time of the run's end, if the commit ends it. `on_word` is called with the answer of
        `commit.lua` before anyone else learns of it.

        Raises `LeaseLost`, or the `RunEnded` error that matches the run's outcome: nothing was
        changed, except that `RunEnded` settles the message. Raises `MessageTooLarge` or ValueError
        before anything is sent, and `Retry` for a step whose request another worker has.
        """
        waiting = self._flatten(lease, envelope, commit, now_ms)
        if self._sent_alone:
            await self._require_counted(envelope)
        waiting.on_word = on_word
        waiting.replies = self._replies.pop((envelope.run_id, envelope.guard), [])
        for reply in waiting.replies:
            if reply.timer is not None:
                reply.timer.cancel()
        self._queue.append(waiting)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send(), name="committer")
        result = await waiting.done
        match result:
            case "ok" | "already" | "later":
                return False
            case "budget":
                return True
            case "lost":
                raise LeaseLost(f"run {envelope.run_id}, entry {lease.entry}: taken over")
            case "ended":
                outcome = await retry_during_outage(
                    "run state",
                    lambda: self._redis.hget(self._shard.run(envelope.run_id), "outcome"),  # pyright: ignore
                )
                raise run_ended(envelope.run_id, (outcome or b"").decode())
            case "duplicate":
                raise RunEnded(f"run {envelope.run_id}: the step is in its journal already")
            case _:
                raise BusError(f"commit.lua answered {result!r}")

    def _flatten(
        self, lease: Lease, envelope: Envelope, commit: StepCommit, now_ms: int
    ) -> _PendingCommit:
        shard, run_id = self._shard, envelope.run_id
        _check_numbers(commit)
        _check_texts(commit)
        self._check_size("step", commit.step)
        keys = [
            lease.stream,
            shard.run(run_id),
            shard.journal(run_id),
            shard.log(run_id),
            shard.usage(run_id),
        ]
        args: list[scripts.Value] = [
            lease.entry,
            lease.consumer,
            lease.count,
            run_id,
            envelope.guard,
            commit.step,
            commit.tokens,
            commit.micro_dollars,
            len(commit.publish),
        ]
        for outgoing in commit.publish:
            keys.append(shard.work(outgoing.stream))
            args.append(self._check_size("envelope", outgoing.envelope.to_json()))
        if commit.join is None:
            args.append("")
        else:
            after = commit.join.continuation
            keys.append(shard.work(after.stream))
            args += [
                commit.join.id,
                commit.join.branches,
                self._check_size("envelope", after.envelope.to_json()),
            ]
        args.append(commit.arrive)
        if commit.wait is None:
            args.append("")
        else:
            after = commit.wait.continuation
            keys.append(shard.work(after.stream))
            head, tail = commit.wait.envelope_parts()
            self._check_size("envelope", head + tail)
            milliseconds = max(1, int(commit.wait.seconds * 1000))
            args += [commit.wait.signal, after.envelope.guard, milliseconds, "{}", head, tail]
        if commit.finish is None:
            args.append("")
        else:
            answer = self._check_size("answer", commit.finish.answer.encode())
            # The text may quote something unchecked: a program's output, an exception's message.
            reason = commit.finish.reason.encode(errors="replace")
            args += [commit.finish.outcome, answer, reason, now_ms]
        return _PendingCommit(keys, args, asyncio.get_running_loop().create_future())

    def _check_size(self, what: str, data: bytes) -> bytes:
        if len(data) > self._settings.max_message_bytes:
            raise MessageTooLarge(
                f"{what} of {len(data)} bytes; the limit is {self._settings.max_message_bytes} "
                "(max_message_bytes)"
            )
        return data

    async def _send(self) -> None:
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))]
            shard = self._shard
            keys = [shard.active, shard.trajectories, shard.history, shard.ledger]
            args: list[scripts.Value] = [
                len(batch),
                int(self._settings.history),
                int(self._settings.retention_seconds * 1000),
                "workers",
                self._inbox,
            ]
            for waiting in batch:
                keys += waiting.keys
                args += waiting.args
            replies = [reply for waiting in batch for reply in waiting.replies]
            name = "commit"
            if replies:
                name = "reply_and_commit"
                keys = [key for reply in replies for key in reply.keys] + keys
                counts: list[scripts.Value] = [len(reply.args) for reply in replies]
                parts = [value for reply in replies for value in reply.args]
                args = [len(replies), *counts, *parts, *args]
            try:
                # Safe to repeat: a commit that was applied answers "already", and so does a reply.
                results = await self._call(name, keys, args)
                words = [result.decode() for result in results]
                refused = bool(replies) and len(words) == len(replies)
                if not refused and len(words) != len(replies) + len(batch):
                    raise BusError(f"{name}.lua answered {len(words)} of {len(batch)} commits")
            except Exception as error:  # noqa: BLE001 - no waiting helps: the callers are told
                for waiting in (*replies, *batch):
                    _fail(waiting.done, error)
                continue
            if refused:
                for reply, word in zip(replies, words, strict=True):
                    _tell(reply.done, word)
                self._commit_without(batch, dict(zip(map(id, replies), words, strict=True)))
                continue
            for waiting, word in zip(batch, words[len(replies) :], strict=True):
                if waiting.on_word is not None:
                    waiting.on_word(word)
            # Deliver results in the loop's next turn: callers that wait for a run's end are served
            # before tasks that only have to clean up.
            asyncio.get_running_loop().call_soon(_tell_all, (*replies, *batch), words)

    async def _call(self, name: str, keys: list[str], args: list[scripts.Value]) -> list[bytes]:
        return await retry_during_outage(
            "commit", lambda: scripts.call(self._redis, name, keys, args)
        )

    def _commit_without(self, batch: list[_PendingCommit], words: dict[int, str]) -> None:
        """Handle a batch of which nothing was committed: steps with a reply that does not count are
        retried, the others are committed without their replies."""
        for waiting in reversed(batch):
            counted = all(words[id(reply)] in ("ok", "already") for reply in waiting.replies)
            waiting.replies = []
            if counted:
                self._queue.appendleft(waiting)
            else:
                _fail(waiting.done, Retry("another worker has the step's request", delay=0.0))


def _tell_all(waiting: Sequence[_PendingReply | _PendingCommit], words: Sequence[str]) -> None:
    for waiter, word in zip(waiting, words, strict=True):
        _tell(waiter.done, word)


def _tell(waiter: asyncio.Future[str], word: str) -> None:
    if not waiter.done():
        waiter.set_result(word)


def _fail(waiter: asyncio.Future[str], error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)
