"""One message in a worker's hands."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
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
"""Life of a stored result in ms: longer than the longest step that may ask for it again. It goes a
minute after its step is committed or its run has ended; with the journal, if a replay may wake that
run."""


@dataclass(slots=True)
class Delivery:
    """A leased message. End it with exactly one of `commit`, `reply` or `drop`, or raise."""

    bus: Bus
    shard: Shard
    stream: str
    """Name of the work stream, without its key prefix."""
    lease: Lease
    envelope: Envelope
    payload: BaseModel
    state: RunState | None = None
    """The run at the time when this process published the message, a moment ago."""
    eager: EagerDelivery | None = None
    """Early start of a message that is handled before it is published. Until it is, the lease has
    no entry."""
    limited: bool = True
    """False where `deadline` has seen that no budget limits the run's calls."""
    settling: bool = False
    """Redis has been told what becomes of the message, and its answer says whether the lease still
    held: that the keeper does not find the lease any more means nothing from here on."""

    @contextmanager
    def _settle(self) -> Generator[None]:
        self.settling = True
        try:
            yield
        except BaseException:
            self.settling = False
            raise

    async def held(self) -> None:
        """Wait until this process has the lease. Raises `NotDelivered`."""
        if self.eager is not None:
            await self.eager.held()

    @property
    def published(self) -> float:
        """Time when the message was put on its stream, in Unix seconds of the server's clock."""
        if self.lease.entry == UNKNOWN_ENTRY:
            return self.bus.clock.now()
        return int(self.lease.entry.partition("-")[0]) / 1000

    async def run_state(self) -> RunState:
        """The run with its journal: as the bus holds it, or as it was admitted a moment ago. The
        commit notices later changes."""
        return self.state or await self.bus.run_state(self.envelope.run_id)

    async def deadline(self) -> float | None:
        """Deadline of the run, as `Bus.deadline_of` gives it."""
        if self.state is not None:
            return self.state.deadline
        deadline, self.limited = await self.bus.deadline_and_limited(self.envelope.run_id)
        return deadline

    async def commit(self, commit: StepCommit) -> bool:
        """Commit the step: see `Committer.commit`."""
        if self.eager is not None:
            await self.eager.held()
        committer, local = self.bus.committer(self.shard), self.bus.local
        ended = self._ended_state(commit)
        if ended is not None:
            local.tell_coming(ended)

        def on_word(word: str) -> None:
            if word == "budget":
                local.tell_end(self.envelope.run_id, None)
            elif word in ("ok", "already") and commit.finish is not None:
                local.tell_end(self.envelope.run_id, ended)

        # As `_settle`, without its cost: this is the way of every step.
        self.settling = True
        try:
            return await committer.commit(self.lease, self.envelope, commit, on_word)
        except BaseException:
            self.settling = False
            raise

    def _ended_state(self, commit: StepCommit) -> RunState | None:
        """The state of a run of one step, which this process knows completely, once that is
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
            ended=self.bus.clock.now(),
            step_records=None if records is None else (*records, commit.record),
        )

    def call_name(self, number: int) -> str:
        """Name of the `number`-th paid call of this delivery in the ledger; never used again."""
        lease = self.lease
        return f"{lease.consumer}/{lease.count}/{lease.entry}/{number}"

    async def mark(
        self,
        number: int,
        unknown: bytes,
        accounted: Sequence[tuple[int, bytes]] = (),
        most: Reservation = NOTHING,
    ) -> None:
        """Write ahead of the `number`-th call that may be paid for, and hold the `most` that it can
        come to in every budget of the run; send it only after this.

        `unknown` becomes its usage entry if this delivery never accounts for it: by `reply`, or
        by the `accounted` of a later mark, which are numbers and usage entries (empty where nothing
        was paid). It is empty for a call that nobody bills, which is held alone. Raises
        `LeaseLost`, `RunEnded`, `BudgetExceeded`, or `NoRoom` where the budget is held by calls
        that are under way: then nothing may be sent.
        """
        result: bytes | list[bytes] | None = None
        if self.eager is not None:
            result = await self.eager.start.mark_call(self.eager, number, unknown, most)
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
        """Answer a request. Each usage entry comes twice: as used, and marked as discarded.

        With `store`, a retried step is handed this reply and pays nothing; without it (an error
        that may pass) it may ask again. Every call that was marked is accounted for by this: what
        is not among the entries was not paid. A reply over the size limit is replaced by an error
        that says so. Raises `LeaseLost` when another worker has the request; the usage was entered
        all the same, because it was paid for.
        `record` is what the reply was written from, for a step of this process.
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
            # It was paid for: the usage is entered, and the waiter learns why it gets nothing.
            args[4] = error_reply(
                "too_large", f"the reply has {len(reply)} bytes; the limit is {limit} "
                "(max_message_bytes)", retryable=False,
            )  # fmt: skip
        key = self.envelope.reply_key
        committer = self.bus.committer(self.shard)
        handed_over = Reply(cast("bytes", args[4]), record if args[4] is reply else None)
        if store and self.bus.local.waits_for(key):
            # The step of this process that asked may continue: its commit is not applied without
            # this.
            pending = committer.reply_later(self.envelope, keys, args)
            self.bus.local.tell_reply(key, handed_over)
            with self._settle():
                result = await pending
        else:
            with self._settle():
                result = await committer.reply(keys, args)
        if result == "lost":
            raise LeaseLost(f"request {key}: taken over")
        self.bus.local.tell_reply(key, handed_over)  # also who has asked again meanwhile

    async def drop(self) -> None:
        """Settle without effect: the run is over. A run that a replay may wake keeps the
        message."""
        await self.held()
        lease, shard, envelope = self.lease, self.shard, self.envelope
        keys = [lease.stream, shard.run(envelope.run_id), shard.request(envelope.reply_key)]
        args: list[scripts.Value] = [lease.group, lease.entry, lease.consumer, lease.count]
        with self._settle():
            await retry_during_outage(
                "drop", lambda: scripts.call(self.bus.redis, "drop", keys, args)
            )
