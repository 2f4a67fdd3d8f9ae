"""The tool worker: runs registered tools and those of tool sources for requests on the bus."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

import structlog

from loopline.agents.approvals import (
    APPROVAL_ERROR,
    ApprovalNeeded,
    ApprovalRequest,
    digest_of,
    read_decision,
    refusal_of,
)
from loopline.agents.errors import UnknownName
from loopline.agents.records import Approval, JsonObject, StoredRecord
from loopline.agents.tools import NotCarriedOut, ToolContext, tools
from loopline.agents.tools.effects import Effect, OnUnknown, ToolAnswer
from loopline.bus import Delivery, effects, error_reply, waits
from loopline.bus.attempt import Handler
from loopline.bus.effects import Start
from loopline.workers.messages import ToolPayload, tool_result

if TYPE_CHECKING:
    from loopline.workers.tool_sources.sources import ToolSources

log = structlog.get_logger("loopline.workers.tool")

MAX_NOTED_CHARS = 4_000
"""Longest arguments in the list of calls without an outcome."""


class Callee(Protocol):
    """A tool, wherever it runs."""

    @property
    def effect(self) -> Effect: ...

    @property
    def on_unknown(self) -> OnUnknown: ...

    @property
    def reconciles(self) -> bool:
        """Whether it can check the result of a call."""
        ...

    @property
    def approval_seconds(self) -> float:
        """How long a call waits for approval."""
        ...

    async def needs_approval(self, arguments: JsonObject, context: ToolContext) -> bool: ...

    async def carry_out(self, arguments: JsonObject, context: ToolContext) -> ToolAnswer: ...

    async def reconcile(self, arguments: JsonObject, context: ToolContext) -> ToolAnswer:
        """Find out the result of a call. Raises `NotCarriedOut`."""
        ...


class CallNote(StoredRecord):
    """An entry in the list of calls without an outcome."""

    key: str
    run_id: str
    agent: str
    tool: str
    arguments: JsonObject
    """Complete arguments, or `{"cut": …}` with the start of their JSON."""
    worker: str
    """The consumer that started the call."""
    began: float
    """Unix seconds of the deployment's clock."""
    why: str = ""
    """Why its outcome is unknown; empty until its worker has reported that."""
    waits_for_person: bool = False
    late_answer: JsonObject | None = None
    """The worker's answer, after the run had continued without it."""


def tool_handler(
    sources: ToolSources | None = None,
    watch: Callable[[Delivery], AbstractContextManager[None]] = lambda delivery: nullcontext(),
) -> Handler:
    """Return the handler of tool requests. A tool that fails or hangs answers `{"error": …}`.

    A registered tool takes precedence over a source's tool of the same name. `watch` wraps the work
    of each call but not its reply, which the caller may receive before the call ends here.
    """

    def callee_of(name: str) -> Callee:
        if sources is not None and sources.serves(name) and name not in tools.names():
            return sources.tool(name)
        return tools.get(name)

    async def handle(delivery: Delivery) -> None:
        with watch(delivery):
            reply, store = await answer(delivery)
        await delivery.reply(reply, store=store)

    async def answer(delivery: Delivery) -> tuple[bytes, bool]:
        """The reply to a request, and whether to store it."""
        payload = delivery.payload
        assert isinstance(payload, ToolPayload)
        try:
            callee = callee_of(payload.name)
        except UnknownName as error:
            return tool_result.dump_json({"error": str(error)}), True
        if await callee.needs_approval(payload.arguments, _context(delivery, payload)):
            approval = await _approval(delivery, payload)
            if approval is None:
                request = _approval_request(delivery, payload, callee).model_dump_json()
                return error_reply(APPROVAL_ERROR, request, retryable=False), False
            if approval.decision != "approved":
                return tool_result.dump_json({"error": refusal_of(approval)}), True
        if callee.effect == "once":
            try:
                return await _Once(delivery, payload, callee).reply(), True
            except ApprovalNeeded as needed:
                request = needed.request.model_dump_json()
                return error_reply(APPROVAL_ERROR, request, retryable=False), False
        result = await callee.carry_out(payload.arguments, _context(delivery, payload))
        return tool_result.dump_json(result.value), True

    return handle


async def _approval(delivery: Delivery, payload: ToolPayload) -> Approval | None:
    """The bus's decision on exactly this call; no other source is trusted."""
    key, run_id = delivery.envelope.reply_key, delivery.envelope.run_id
    digest = digest_of("tool", payload.name, payload.arguments)
    decision = await waits.read_decision(delivery.bus, run_id, key)
    return read_decision(decision, key, payload.name, digest)


def _approval_request(delivery: Delivery, payload: ToolPayload, callee: Callee) -> ApprovalRequest:
    return ApprovalRequest(
        request=delivery.envelope.reply_key,
        kind="tool",
        name=payload.name,
        agent=payload.agent,
        arguments=payload.arguments,
        digest=digest_of("tool", payload.name, payload.arguments),
        seconds=callee.approval_seconds,
    )


def _context(delivery: Delivery, payload: ToolPayload) -> ToolContext:
    envelope = delivery.envelope
    return ToolContext(envelope.reply_key, envelope.run_id, payload.agent, envelope.traceparent)


class _Once:
    """One delivery of a call that must not be made twice."""

    def __init__(self, delivery: Delivery, payload: ToolPayload, callee: Callee) -> None:
        self._delivery = delivery
        self._payload = payload
        self._callee = callee
        self._context = _context(delivery, payload)
        self._note = CallNote(
            key=self._context.key,
            run_id=self._context.run_id,
            agent=payload.agent,
            tool=payload.name,
            arguments=_shown(payload.arguments),
            worker=delivery.lease.consumer,
            began=delivery.bus.clock.now(),
        )

    async def reply(self) -> bytes:
        """Make the call, or return its outcome. Raises `ApprovalNeeded` until a person states the
        outcome or the time for that has passed."""
        begun = await effects.begin(self._delivery, _line(self._note))
        if isinstance(begun, bytes):
            return begun
        if begun is Start.FIRST:
            answer = await self._callee.carry_out(self._payload.arguments, self._context)
            if not answer.unknown:
                return await self._finish(answer)
            if not self._callee.reconciles:
                return await self._unknown(answer)
        answer = await self._reconciled()
        return await (self._unknown(answer) if answer.unknown else self._finish(answer))

    async def _reconciled(self) -> ToolAnswer:
        arguments, context = self._payload.arguments, self._context
        try:
            return await self._callee.reconcile(arguments, context)
        except NotCarriedOut:
            log.info("call repeated", tool=self._payload.name, call=context.key)
        begun = await effects.begin(self._delivery, _line(self._note), again=True)
        if isinstance(begun, bytes):  # its first worker was paused, and has answered meanwhile
            return ToolAnswer(tool_result.validate_json(begun))
        return await self._callee.carry_out(arguments, context)

    async def _finish(self, answer: ToolAnswer) -> bytes:
        reply = tool_result.dump_json(answer.value)
        note = self._note.model_copy(update={"late_answer": _shown(answer.value)})
        if not await effects.finish(self._delivery, reply, _line(note)):
            log.warning("answer came late", tool=self._payload.name, call=self._context.key)
        return reply

    @property
    def _request(self) -> ApprovalRequest:
        """The outcome that the run waits for. Only `effects.resolve` can decide it."""
        payload = self._payload
        return ApprovalRequest(
            request=effects.wait_name(self._context.key),
            kind="outcome",
            name=payload.name,
            agent=payload.agent,
            arguments=payload.arguments,
            digest=digest_of("outcome", payload.name, payload.arguments),
            seconds=self._callee.approval_seconds,
        )

    async def _is_given_up(self) -> bool:
        """Whether the time passed without a person stating the call's outcome."""
        request, run_id = self._request, self._context.run_id
        decision = await waits.read_decision(self._delivery.bus, run_id, request.request)
        return read_decision(decision, request.request, request.name, request.digest) is not None

    async def _unknown(self, answer: ToolAnswer) -> bytes:
        person = self._callee.on_unknown == "person" and not await self._is_given_up()
        note = self._note.model_copy(update={"why": answer.unknown, "waits_for_person": person})
        outcome = await effects.finish(self._delivery, None, _line(note), tells=not person)
        if isinstance(outcome, bytes):  # its first worker was paused, and has answered meanwhile
            return outcome
        call = {"tool": self._payload.name, "call": self._context.key, "why": answer.unknown}
        if person:
            log.warning("outcome unknown, its run waits for a person", **call)
            raise ApprovalNeeded(self._request)
        log.warning("outcome unknown, its model decides", **call)
        value = {**answer.value, "outcome": "unknown", "call": self._context.key}
        return tool_result.dump_json(value)


def _line(note: CallNote) -> bytes:
    return note.model_dump_json(exclude_defaults=True).encode()


def _shown(value: JsonObject) -> JsonObject:
    text = json.dumps(value)
    return value if len(text) <= MAX_NOTED_CHARS else {"cut": text[:MAX_NOTED_CHARS]}
