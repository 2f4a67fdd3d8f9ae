"""One message that a worker is handling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from pydantic import BaseModel

from loopline.bus import scripts
from loopline.bus.budgets import NOTHING, Refusal, Reservation
from loopline.bus.commit import StepCommit
from loopline.bus.connection import retry_during_outage
from loopline.bus.eager_start import UNKNOWN_ENTRY, EagerDelivery
from loopline.bus.envelope import Envelope
from loopline.bus.errors import LeaseLost, NoRoom, RunEnded
from loopline.bus.keys import Shard
from loopline.bus.lease import Lease
from loopline.bus.replies import Reply, error_reply
from loopline.bus.run_state import RunState

if TYPE_CHECKING:
    from loopline.bus.bus import Bus

REQUEST_LIFE_MS = 86_400_000
"""Life of a stored result in ms: longer than the longest step that may ask for it again. The result
expires a minute after its step is committed or its run has ended, or with the journal if a replay
may reactivate the run."""


@dataclass(slots=True)
class Delivery:
    """A leased message. Settle it with exactly one of `commit`, `reply` or `drop`, or raise."""

    bus: Bus
    shard: Shard
    stream: str
    """Name of the work stream, without its key prefix."""
    lease: Lease
    envelope: Envelope
    payload: BaseModel
    state: RunState | None = None
    """The run as of a moment ago, when this process published the message."""
    eager: EagerDelivery | None = None
    """Early start of a message that is handled before it is published. Until then, the lease has no
    entry."""
    limited: bool = True
    """False if `deadline` found that no budget limits the run's calls."""
    settling: bool = False
    """Redis has been sent the outcome, and its answer tells whether the lease was still held. From
    here on the keeper may fail to find the lease, which means nothing."""

    async def held(self) -> None:
        """Wait until this process has the lease. Raises `NotDelivered`."""
        if self.eager is not None:
            await self.eager.held()

    @property
    def published(self) -> float:
        """Time when the message was added to its stream, in Unix seconds of the server's clock."""
        if self.lease.entry == UNKNOWN_ENTRY:
            return self.bus.clock.now()
        return int(self.lease.entry.partition("-")[0]) / 1000

    async def run_state(self) -> RunState:
        """The run with its journal: as stored on the bus, or as admitted a moment ago. The commit
        notices later changes."""
        return self.state or await self.bus.run_state(self.envelope.run_id)

    async def deadline(self) -> float | None:
        """Deadline of the run, as `Bus.deadline_of` returns it."""
        if self.state is not None:
            return self.state.deadline
        deadline, self.limited = await self.bus.deadline_and_limited(self.envelope.run_id)
        return deadline

    async def commit(self, commit: StepCommit) -> bool:
        """Commit the step: see `Committer.commit`."""
        await self.held()
        committer, local = self.bus.committer(self.shard), self.bus.local
        now_ms = self.bus.clock.now_ms()
        ended = self._ended_state(commit, now_ms)
        if ended is not None:
            local.tell_expected_end(ended)

        def on_word(word: str) -> None:
            committed = word in ("ok", "already", "later")
            if word == "budget" or (committed and commit.finish is not None):
                # Only a commit that was applied as sent ended the run in this state.
                local.tell_end(self.envelope.run_id, ended if word == "ok" else None)

        with _Settling(self):
            return await committer.commit(self.lease, self.envelope, commit, now_ms, on_word)

    def _ended_state(self, commit: StepCommit, now_ms: int) -> RunState | None:
        """The state of a one-step run, which this process knows completely, after the step is
        committed."""
        if self.state is None or commit.finish is None:
            return None
        records = self.state.step_records
        return replace(
            self.state,
            state="ended",
            steps=(*self.state.steps, commit.step),
            outcome=commit.finish.outcome,
            answer=commit.finish.answer,
            reason=commit.finish.reason,
            tokens=commit.tokens,
            micro_dollars=commit.micro_dollars,
            ended=now_ms / 1000,
            step_records=None if records is None else (*records, commit.record),
        )

    def call_name(self, number: int) -> str:
        """Name of this delivery's `number`-th paid call in the ledger; never reused."""
        lease = self.lease
        return f"{lease.consumer}/{lease.count}/{lease.entry}/{number}"

    async def mark(
        self,
        number: int,
        unknown: bytes,
        accounted: Sequence[tuple[int, bytes]] = (),
        most: Reservation = NOTHING,
    ) -> None:
        """Record the `number`-th call, which may cost money, before it is sent, and reserve its
        maximum cost `most` in every budget of the run. Send the call only after this.

        `unknown` becomes the call's usage entry if this delivery never accounts for it, either by
        `reply` or by the `accounted` argument of a later mark (call numbers and usage entries,
        empty if nothing was paid). It is empty for an unbilled call, for which this only reserves.
        Raises `LeaseLost`, `RunEnded`, `BudgetExceeded`, or `NoRoom` if calls in progress have
        reserved the budget: then nothing may be sent.
        """
        result: bytes | list[bytes] | None = None
        if self.eager is not None:
            result = await self.eager.mark(number, unknown, most)
            unknown = unknown.replace(UNKNOWN_ENTRY.encode(), self.lease.entry.encode(), 1)
        if result is None:
            result = await self._mark(number, unknown, accounted, most)
        if result == b"lost":
            raise LeaseLost(f"request {self.envelope.reply_key}: taken over")
        if result == b"over":
            raise RunEnded(
                f"request {self.envelope.reply_key}: its step is committed or its run has ended"
            )
        if isinstance(result, list):
            refusal = Refusal.of(result)
            error = refusal.error(f"call {number} of the request {self.envelope.reply_key}")
            if refusal.may_pass:
                raise NoRoom(str(error), most.script_values)
            raise error

    async def _mark(
        self,
        number: int,
        unknown: bytes,
        accounted: Sequence[tuple[int, bytes]],
        most: Reservation,
    ) -> bytes | list[bytes]:
        lease = self.lease
        args: list[scripts.Value] = [
            lease.group,
            lease.entry,
            lease.consumer,
            lease.count,
            self.envelope.guard,
            number,
            *most.script_values,
            unknown,
        ]
        for earlier, entry in accounted:
            args += [earlier, entry]
        return await retry_during_outage(
            "mark", lambda: scripts.call(self.bus.redis, "mark", self._request_keys(), args)
        )

    def _request_keys(self) -> list[str]:
        shard, run_id = self.shard, self.envelope.run_id
        return [
            self.lease.stream,
            shard.request(self.envelope.reply_key),
            shard.run(run_id),
            shard.usage(run_id),
            shard.ledger,
        ]

    async def reply(
        self,
        reply: bytes,
        *,
        store: bool,
        usage: Sequence[tuple[bytes, bytes]] = (),
        record: object = None,
    ) -> None:
        """Answer a request. Each usage entry has two versions: used, and marked as discarded.

        With `store`, a retried step gets this reply and pays nothing; without it (a transient
        error) the step may ask again. This accounts for every marked call: a call without an entry
        cost nothing. A reply over the size limit is replaced by an error that states this. Raises
        `LeaseLost` when another worker has the request; the usage is entered anyway, because it was
        paid for. `record` is the object that the reply was serialized from, for a step of this
        process.
        """
        await self.held()
        lease, keys = self.lease, self._request_keys()
        args: list[scripts.Value] = [
            lease.group,
            lease.entry,
            lease.consumer,
            lease.count,
            reply,
            int(store),
            REQUEST_LIFE_MS,
            self.envelope.guard,
            self.shard.inbox(self.bus.process),
        ]
        for used, discarded in usage:
            args += [used, discarded]
        limit = self.bus.settings.max_message_bytes
        if len(reply) > limit:
            # The calls were paid for: their usage is entered, and the waiter learns why it gets no
            # result.
            args[4] = error_reply(
                "too_large", f"the reply has {len(reply)} bytes; the limit is {limit} "
                "(max_message_bytes)", retryable=False,
            )  # fmt: skip
        key = self.envelope.reply_key
        committer = self.bus.committer(self.shard)
        handed_over = Reply(cast("bytes", args[4]), record if args[4] is reply else None)
        if store and self.bus.local.waits_for(key):
            # The step in this process that asked may continue: its commit is applied only with this
            # reply.
            pending = committer.reply_later(self.envelope, keys, args)
            self.bus.local.tell_reply(key, handed_over)
            with _Settling(self):
                result = await pending
        else:
            with _Settling(self):
                result = await committer.reply(keys, args)
        if result == "lost":
            raise LeaseLost(f"request {key}: taken over")
        self.bus.local.tell_reply(key, handed_over)  # also callers that have asked again meanwhile

    async def drop(self) -> None:
        """Settle the message without effect: the run has ended. A run that a replay may reactivate
        keeps the message."""
        await self.held()
        lease, shard, envelope = self.lease, self.shard, self.envelope
        keys = [lease.stream, shard.run(envelope.run_id), shard.request(envelope.reply_key)]
        args: list[scripts.Value] = [lease.group, lease.entry, lease.consumer, lease.count]
        with _Settling(self):
            await retry_during_outage(
                "drop", lambda: scripts.call(self.bus.redis, "drop", keys, args)
            )


class _Settling:
    """Marks a delivery as settling, unless the block fails. A class, since every step pays for it:
    a generator's context costs three times as much."""

    __slots__ = ("_delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def __enter__(self) -> None:
        self._delivery.settling = True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._delivery.settling = False
