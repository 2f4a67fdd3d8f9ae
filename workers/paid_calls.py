"""Paid calls of one request: recorded before each call, and accounted for with its reply.

If a worker dies between a call and storing its answer, its mark remains on the bus and becomes a
ledger entry with the most that may have been paid. Meanwhile that amount is reserved in the budgets
of the call's run. Local models bill nobody: their calls are not marked, and a call that dies with
its worker costs nothing. If a budget limits their tokens, only those are reserved.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import orjson

from loopline.agents.records import Call, Latency, PolicyRef, Usage
from loopline.agents.token_limits import NO_LIMIT
from loopline.agents.usage import UnknownUsage, UsageEntry
from loopline.bus import Delivery, Reservation
from loopline.workers.completions import usage_entry
from loopline.workers.engines.protocol import Discarded, GenerateRequest, NotBilled, Sending
from loopline.workers.engines.settings import ModelSettings, cost_micro_dollars, max_micro_dollars

TEMPLATE_TOKENS = 512
"""Allowance for a chat template's own text about tools."""
DIED = "sent; its worker ended, or lost the request, before it could enter an answer"
NOT_TOLD = "sent; what became of it was not told"
_UNLIMITED = Reservation(tokens=None, micro_dollars=None)
BEATEN = "sent, and cancelled in favour of the other one of two requests"


@dataclass(slots=True, eq=False)
class Terms:
    """What all calls of a lane have in common. A call refers to these and not to its lane, which
    refers to its calls: reference cycles would pile up until the garbage collector runs."""

    policy: PolicyRef
    settings: ModelSettings
    hedge: Literal["", "first", "second"] = ""


@dataclass(slots=True, eq=False)
class _Call:
    """A marked call."""

    number: int
    """Number in the mark."""
    terms: Terms
    sending: Sending
    at: float
    discarded_usage: list[UsageEntry] = field(default_factory=list[UsageEntry])
    over: bool = False
    """Whether the call is over: `discarded_usage` then contains what was paid for it."""


class Lane:
    """One request to an engine, with the calls that the engine makes for it."""

    def __init__(
        self,
        paid: PaidCalls,
        policy: PolicyRef,
        settings: ModelSettings,
        hedges: Lane | None,
    ) -> None:
        self.terms = Terms(policy, settings, "" if hedges is None else "second")
        self.sent = asyncio.Event()
        """Set when a call is recorded and about to be sent."""
        self.sent_at = 0.0
        """Time of the first such call by the event loop's clock."""
        self._paid = paid
        self._hedges = hedges
        self._calls: dict[int, _Call] = {}
        """Calls by the engine's call number."""

    async def sending(self, event: Sending) -> None:
        """Record a call. Raises `LeaseLost`, `RunEnded`, `BudgetExceeded`, or `NoRoom` while other
        calls reserve the rest of the budget: then the call must not be sent."""
        self._calls[event.number] = await self._paid.mark(self.terms, event, self._most(event))
        self._begin()
        if not self.sent.is_set():
            self.sent_at = asyncio.get_running_loop().time()
            self.sent.set()

    async def hold(self, request: GenerateRequest) -> None:
        """Reserve the most that a local model can use for a request. Raises `BudgetExceeded`, or
        `NoRoom` while other calls reserve the rest of the budget."""
        sampling = request.sampling
        texts = (*request.messages, *request.callable_tools)
        # A token has at least one byte, and a template adds less to a message than its JSON does.
        template = TEMPLATE_TOKENS if request.callable_tools else 0
        prompt = template + sum(len(text.model_dump_json().encode()) for text in texts)
        completion = sampling.n * sampling.max_tokens
        await self._paid.hold(
            _UNLIMITED
            if sampling.max_tokens == NO_LIMIT
            else Reservation(
                tokens=prompt + completion,
                micro_dollars=max_micro_dollars(prompt, completion, self.terms.settings.price),
            )
        )
        self._begin()

    def _begin(self) -> None:
        """Treat the request as sent: it may be answered now, so the request that it duplicates is
        hedged."""
        if self._hedges is not None:
            self._hedges.terms.hedge = "first"

    def discard_call(self, event: Discarded | NotBilled) -> None:
        """Record that a paid answer can't be used, or that nothing was paid."""
        call = self._calls.get(event.sending)
        if call is not None:
            call.over = True
        if isinstance(event, NotBilled):
            return
        if event.usage is None:
            entries = [] if call is None else [self._paid.unknown_entry(call, event.why)]
        else:
            cost = cost_micro_dollars(event.usage, self.terms.settings.price)
            entries = [
                self._paid.entry(self.terms, call, time.time(), usage=event.usage, cost=cost)
            ]
        (self._paid.unsent if call is None else call.discarded_usage).extend(entries)

    def call(self, number: int) -> _Call | None:
        return self._calls.get(number)

    def _most(self, event: Sending) -> Reservation:
        if not event.has_limit:
            return _UNLIMITED
        price = self.terms.settings.price
        dollars = max_micro_dollars(event.prompt, event.completion, price)
        return Reservation(
            tokens=event.prompt + event.completion,
            micro_dollars=dollars if price.is_known else None,
        )


class PaidCalls:
    """Paid calls of one delivery of a request."""

    def __init__(self, delivery: Delivery, agent: str) -> None:
        self._delivery = delivery
        self._agent = agent
        self._marked = 0
        self._calls: list[_Call] = []
        """Calls that are not yet accounted for on the bus."""
        self.unsent: list[UsageEntry] = []
        """Discarded usage of an engine that sends no calls."""

    def lane(
        self, policy: PolicyRef, settings: ModelSettings, *, hedges: Lane | None = None
    ) -> Lane:
        """Open a lane for an engine with this policy and price; `hedges` is the slow lane that it
        duplicates."""
        return Lane(self, policy, settings, hedges)

    async def mark(self, terms: Terms, event: Sending, most: Reservation) -> _Call:
        over = [call for call in self._calls if call.over]
        # The reply creates one entry for each of several unused candidates.
        over = [call for call in over if len(call.discarded_usage) < 2]
        accounted = [(call.number, _entry_line(*call.discarded_usage)) for call in over]
        self._marked += 1
        call = _Call(self._marked, terms, event, time.time())
        line = self.line_of_mark(call)
        await self._delivery.mark(call.number, line, accounted, most)
        # Another lane may have marked calls meanwhile.
        self._calls = [earlier for earlier in self._calls if earlier not in over] + [call]
        return call

    async def hold(self, most: Reservation) -> None:
        if not self._delivery.limited:
            return
        self._marked += 1
        await self._delivery.mark(self._marked, b"", most=most)

    def entries(
        self,
        answer: Sequence[Call],
        lane: Lane | None,
        sendings: Sequence[int],
        shared_with: str = "",
    ) -> list[tuple[bytes, bytes]]:
        """Return the ledger entries for a reply with these candidates, each as used and again as
        discarded. A candidate belongs to the lane's call at the same position in `sendings`, or to
        the call that was `shared_with` this request."""
        envelope = self._delivery.envelope
        step = (envelope.run_id, self._agent, envelope.turn, envelope.branch)
        usage_entries = list(self.unsent)
        used = [None if lane is None else lane.call(number) for number in sendings]
        for call in self._calls:
            usage_entries += call.discarded_usage
            if not call.over and call not in used:
                usage_entries.append(
                    self.unknown_entry(call, BEATEN if call.terms.hedge else NOT_TOLD)
                )
        for candidate, call in zip(answer, used or [None] * len(answer), strict=True):
            entry = usage_entry(*step, candidate, sent_as=self._sent_as(call))
            update = {"hedge": "" if lane is None else lane.terms.hedge, "shared_with": shared_with}
            usage_entries.append(entry.model_copy(update=update) if any(update.values()) else entry)
        return [(line := _entry_line(entry), _discarded(line)) for entry in usage_entries]

    def _sent_as(self, call: _Call | None) -> str:
        return "" if call is None else self._delivery.call_name(call.number)

    def line_of_mark(self, call: _Call) -> bytes:
        """The JSON line of `unknown_entry(call, DIED)`. It is written before every paid call, so it
        is encoded without a record: creating one would cost more than the rest of the mark."""
        envelope, terms, sending = self._delivery.envelope, call.terms, call.sending
        policy = terms.policy
        return orjson.dumps(
            {
                "run_id": envelope.run_id,
                "call_id": envelope.reply_key,
                "agent": self._agent,
                "turn": envelope.turn,
                "branch": envelope.branch,
                "policy": {
                    "name": policy.name,
                    "base": policy.base,
                    "adapter": policy.adapter,
                    "version": policy.version,
                },
                "usage": None,
                "cost_micro_dollars": None,
                "unknown": {
                    "why": DIED,
                    "prompt": sending.prompt,
                    "completion": sending.completion,
                    "micro_dollars": max_micro_dollars(
                        sending.prompt, sending.completion, terms.settings.price
                    ),
                },
                "sent_as": self._sent_as(call),
                "hedge": terms.hedge,
                "shared_with": "",
                "latency": {"queue": 0.0, "first_token": 0.0, "decode": 0.0},
                "discarded": True,
                "at": call.at,
            }
        )

    def unknown_entry(self, call: _Call, why: str) -> UsageEntry:
        prompt, completion = call.sending.prompt, call.sending.completion
        most = UnknownUsage(
            why=why,
            prompt=prompt,
            completion=completion,
            micro_dollars=max_micro_dollars(prompt, completion, call.terms.settings.price),
        )
        return self.entry(call.terms, call, call.at, unknown=most)

    def entry(
        self,
        terms: Terms,
        call: _Call | None,
        at: float,
        *,
        usage: Usage | None = None,
        cost: int | None = None,
        unknown: UnknownUsage | None = None,
    ) -> UsageEntry:
        envelope = self._delivery.envelope
        return UsageEntry(
            run_id=envelope.run_id,
            call_id=envelope.reply_key,
            agent=self._agent,
            turn=envelope.turn,
            branch=envelope.branch,
            policy=terms.policy,
            usage=usage,
            cost_micro_dollars=cost,
            unknown=unknown,
            sent_as=self._sent_as(call),
            hedge=terms.hedge,
            latency=Latency(),
            discarded=True,
            at=at,
        )


def _entry_line(*entry: UsageEntry) -> bytes:
    """Encode one entry, or no entry as empty bytes."""
    return b"".join(record.model_dump_json().encode() for record in entry)


def _discarded(line: bytes) -> bytes:
    """The line of an entry, marked as discarded. Quotes within its texts are escaped."""
    return line.replace(b'"discarded":false', b'"discarded":true')
