"""Merges equal requests that are in progress at the same time into one call to the endpoint.

The first request makes the call, and its run pays for it. The others wait, with their leases
renewed, and get the same answer as a call of their own with zero usage; their ledger entries name
the call that was paid for. Only requests of one tenant are merged, unless the pool allows sharing
between tenants. If the first call fails, each of the others makes its own; if the first request's
run ends or its worker dies, the next request makes the call. Later requests never get an answer
that has already arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from loopline.agents.records import Call, Latency, Usage
from loopline.bus import Delivery
from loopline.bus.flights import GONE, Flights, Landed, Landing, Seat, flight_name
from loopline.bus.tenants import tenant_of
from loopline.workers.engines.protocol import EngineDeadline, EngineError, GenerateRequest
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.json_bytes import json_bytes
from loopline.workers.messages import calls

_ASKED = {
    "messages", "tools", "tool_choice", "parallel_tool_calls", "token_texts", "top_logprobs",
    "sampling", "json_schema", "template_options",
}  # fmt: skip
"""Fields that determine the answer. The other fields identify the caller and its deadline."""
NOTHING_USED = Usage(prompt=0, completion=0, source="provider")


class Coalescer:
    """Coalescing of equal requests to one pool, in one process."""

    def __init__(self, settings: ModelSettings, flights: Flights) -> None:
        self._settings = settings
        self._flights = flights

    async def flight_of(self, request: GenerateRequest, delivery: Delivery) -> str | None:
        """Return the name that requests with the same answer share; None if this request is not
        merged. Raises `NotDelivered`."""
        deterministic = request.sampling.temperature == 0
        if request.stream or not (deterministic or self._settings.coalesce == "same_body"):
            return None
        parts = request.model_dump(mode="json", include=_ASKED)
        if deterministic:
            parts["sampling"]["seed"] = None
        tenant = ""
        if not self._settings.coalesce_tenants:
            await delivery.held()  # the tenant is unknown until its run is admitted
            tenant = await tenant_of(delivery.bus, delivery.envelope.run_id)
        body = json_bytes(parts, sort_keys=True)
        return flight_name((self._settings.endpoint or "").encode(), body, tenant.encode())

    async def answer(
        self, flight: str, alone: Callable[[], Awaitable[Sequence[Call]]], left: float
    ) -> Sequence[Call] | None:
        """The calls by which another request of the flight was answered; None if this request has
        made its own call, by `alone`, which returns its calls. Raises the errors of `alone`, and
        EngineDeadline after `left` seconds of waiting."""
        try:
            async with asyncio.timeout(left):
                seat, landing = await self._board(flight)
        except TimeoutError:
            raise EngineDeadline(
                "its deadline passed while it waited for an equal request"
            ) from None
        if landing.kind is Landed.ANSWERED:
            return calls.validate_json(landing.answer)
        if not seat.leads:
            await alone()
            return None
        async with self._flights.leading(seat) as lead:
            try:
                answer = await alone()
            except EngineError as error:
                if error.kind not in ("deadline", "cancelled"):  # those concern only this request
                    lead.landing = Landing(Landed.FAILED)
                raise
            lead.landing = Landing(Landed.ANSWERED, calls.dump_json(tuple(answer)))
        return None

    async def _board(self, flight: str) -> tuple[Seat, Landing]:
        """A leading seat, or a seat of a flight that has landed."""
        while True:
            seat = await self._flights.board(flight)
            if seat.leads:
                return seat, GONE
            landing = await self._flights.landing(seat)
            if landing.kind is not Landed.GONE:
                return seat, landing


def as_shared(call: Call, key: str, index: int, *, queued: float, at: float) -> Call:
    """Return another request's call, without usage, as the candidate with that index for the
    request with this key."""
    return call.model_copy(
        update={
            "id": key if index == 0 else f"{key}#{index}",
            "usage": NOTHING_USED,
            "cost_micro_dollars": 0,
            "latency": Latency(queue=queued),
            "answered_at": at,
            # It was sampled once: training on it twice would count it twice.
            "trainable": False,
        }
    )
