"""Paid calls of one request: written down before each call, and accounted for with its reply.

A worker that dies between a call and the storing of its answer leaves a mark on the bus, which
becomes a ledger entry that says what may have been paid. The most that the call can come to is
held in the budgets of its run meanwhile. Local models bill nobody: for them nothing is
marked, and what died with its worker was not a call; where a budget limits their tokens, those are
held alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from loopline.agents.records import Call, Latency, PolicyRef, UnknownUsage, Usage, UsageEntry
from loopline.bus import Delivery, Reservation
from loopline.workers.completions import usage_entry
from loopline.workers.engines.protocol import Discarded, GenerateRequest, NotBilled, Sending
from loopline.workers.engines.settings import ModelSettings, cost_micro_dollars, max_micro_dollars

TEMPLATE_TOKENS = 512
"""Allowance for a chat template's own text about tools."""
DIED = "sent; its worker ended, or lost the request, before it could enter an answer"


@dataclass(slots=True)
class _Call:
    """One that was marked."""

    number: int
    """As the mark has it."""
    sending: Sending
    at: float
    discarded_usage: list[UsageEntry] = field(default_factory=list[UsageEntry])
    over: bool = False
    """Nothing more comes of it: `discarded_usage` is what it was paid for."""


class PaidCalls:
    """Of one delivery of a request."""

    def __init__(
        self, delivery: Delivery, agent: str, policy: PolicyRef, settings: ModelSettings
    ) -> None:
        self._delivery = delivery
        self._agent = agent
        self._policy = policy
        self._settings = settings
        self._marked = 0
        self._calls: dict[int, _Call] = {}
        """By the engine's number, those that are not accounted for on the bus."""
        self._unsent: list[UsageEntry] = []
        """What an engine discards that sends nothing."""

    async def sending(self, event: Sending) -> None:
        """Write a call down. Raises `LeaseLost` or `RunEnded`: then it must not be sent."""
        over = {key: call for key, call in self._calls.items() if call.over}
        # Each unused candidate has an entry, which the reply makes.
        over = {key: call for key, call in over.items() if len(call.discarded_usage) < 2}
        accounted = [(call.number, _entry_line(*call.discarded_usage)) for call in over.values()]
        self._marked += 1
        call = _Call(self._marked, event, time.time())
        await self._delivery.mark(
            call.number, _entry_line(self._unknown_entry(call, DIED)), accounted, self._most(event)
        )
        self._calls = {key: paid_call for key, paid_call in self._calls.items() if key not in over}
        self._calls[event.number] = call

    def answered_by(self, policy: PolicyRef, settings: ModelSettings) -> None:
        """This pool answers from now on; nothing more comes of the calls so far."""
        self._calls = {-number: call for number, call in enumerate(self._calls.values(), start=1)}
        for call in self._calls.values():
            call.over = True
        self._policy = policy
        self._settings = settings

    async def hold(self, request: GenerateRequest) -> None:
        """Hold the most that a local model can use for a request. Raises `BudgetExceeded`,
        or `Retry` while other calls hold what is left."""
        if not self._delivery.limited:
            return
        sampling = request.sampling
        texts = (*request.messages, *request.callable_tools)
        # No token stands for less than a byte; a template adds less to a message than its JSON.
        template = TEMPLATE_TOKENS if request.callable_tools else 0
        prompt = template + sum(len(text.model_dump_json().encode()) for text in texts)
        completion = sampling.n * sampling.max_tokens
        most = Reservation(
            tokens=prompt + completion,
            micro_dollars=max_micro_dollars(prompt, completion, self._settings.price),
        )
        self._marked += 1
        await self._delivery.mark(self._marked, b"", most=most)

    def _most(self, event: Sending) -> Reservation:
        price = self._settings.price
        dollars = max_micro_dollars(event.prompt, event.completion, price)
        return Reservation(
            tokens=event.prompt + event.completion,
            micro_dollars=dollars if price.is_known else None,
        )

    def discard_call(self, event: Discarded | NotBilled) -> None:
        """The paid answer can't be used, or nothing was paid."""
        call = self._calls.get(event.sending)
        if call is not None:
            call.over = True
        if isinstance(event, NotBilled):
            return
        if event.usage is None:
            entries = [] if call is None else [self._unknown_entry(call, event.why)]
        else:
            cost = cost_micro_dollars(event.usage, self._settings.price)
            entries = [self._entry(call, time.time(), usage=event.usage, cost=cost)]
        (self._unsent if call is None else call.discarded_usage).extend(entries)

    def entries(self, answer: Sequence[Call], sendings: Sequence[int]) -> list[tuple[bytes, bytes]]:
        """For the reply, which answers with these candidates, each of the call of that number: its
        entries as used, and marked as discarded."""
        envelope = self._delivery.envelope
        step = (envelope.run_id, self._agent, envelope.turn, envelope.branch)
        usage_entries = list(self._unsent)
        for number, call in self._calls.items():
            usage_entries += call.discarded_usage
            if not call.over and number not in sendings:
                usage_entries.append(
                    self._unknown_entry(call, "sent; what became of it was not told")
                )
        for candidate, number in zip(answer, sendings, strict=True):
            sent_as = self._sent_as(self._calls.get(number))
            usage_entries.append(usage_entry(*step, candidate, sent_as=sent_as))
        return [
            (_entry_line(entry), _entry_line(entry.model_copy(update={"discarded": True})))
            for entry in usage_entries
        ]

    def _sent_as(self, call: _Call | None) -> str:
        return "" if call is None else self._delivery.call_name(call.number)

    def _unknown_entry(self, call: _Call, why: str) -> UsageEntry:
        prompt, completion = call.sending.prompt, call.sending.completion
        most = UnknownUsage(
            why=why,
            prompt=prompt,
            completion=completion,
            micro_dollars=max_micro_dollars(prompt, completion, self._settings.price),
        )
        return self._entry(call, call.at, unknown=most)

    def _entry(
        self,
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
            policy=self._policy,
            usage=usage,
            cost_micro_dollars=cost,
            unknown=unknown,
            sent_as=self._sent_as(call),
            latency=Latency(),
            discarded=True,
            at=at,
        )


def _entry_line(*entry: UsageEntry) -> bytes:
    """Of one entry or none."""
    return b"".join(record.model_dump_json().encode() for record in entry)
