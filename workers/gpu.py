"""The gpu worker: takes completion requests from the bus, lets an engine answer, replies.

Every completion that was paid for is entered in the ledger in the same step as its reply; one
whose lease was lost meanwhile is entered as discarded. What is sent to an endpoint is written down
before, so that a call that dies with its worker is not forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

import structlog

from loopline.agents.records import Call, GenerationOptions, PolicyRef
from loopline.bus import BudgetExceeded, Bus, Delivery, LeaseLost, RunEnded, error_reply
from loopline.bus.policies import PolicyError, load_policy, pool_of, split_pin
from loopline.workers.breaker import FAILURES, Breaker
from loopline.workers.completions import call_of, sampling_of
from loopline.workers.engines.protocol import (
    CannotContinue,
    Completion,
    Delta,
    Discarded,
    Engine,
    EngineBroken,
    EngineError,
    GenerateRequest,
    NotBilled,
    Sending,
)
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.messages import CompletionPayload, calls
from loopline.workers.paid_calls import PaidCalls
from loopline.workers.policies import OtherVersion, PolicyFollower
from loopline.workers.token_stream import TokenStream

log = structlog.get_logger("loopline.workers.gpu")


class PoolObserver(Protocol):
    """Who is told what a pool does."""

    def answered(self, pool: str, calls: Sequence[Call]) -> None: ...

    def failed(self, pool: str, kind: str) -> None: ...


@dataclass(frozen=True)
class _Answer:
    """What a pool has to say to a request."""

    reply: bytes
    store: bool
    calls: tuple[Call, ...] = ()
    sendings: Sequence[int] = ()
    error: str = ""
    """Its kind."""


class Pool:
    """One model and the handler of its requests."""

    def __init__(
        self, name: str, settings: ModelSettings, engine: Engine, worker: str = ""
    ) -> None:
        """`worker` is what logs call the process."""
        self.name = name
        self.worker = worker
        self.settings = settings
        self.engine = engine
        self.policies = PolicyFollower(name, engine, settings.base_until_published)
        self.observer: PoolObserver | None = None
        self.breaker = Breaker(settings.breaker_failures, settings.breaker_seconds)
        self.fallbacks: Sequence[Pool] = ()

    async def handle(self, delivery: Delivery) -> None:
        """Answer one request. An engine's error becomes an error reply: the role decides.

        Raises `EngineBroken`: the request is for another worker to answer.
        """
        payload = delivery.payload
        assert isinstance(payload, CompletionPayload)
        envelope = delivery.envelope
        deadline = await delivery.deadline()
        if deadline is None:
            raise RunEnded(f"run {envelope.run_id} is over")
        queued = max(0.0, delivery.bus.clock.now() - delivery.published)
        paid = PaidCalls(delivery, payload.agent, self._policy_ref, self.settings)
        first, *others = self._chain(payload)
        answer = await first._answer(delivery, payload, deadline, queued, paid)
        for pool in others:
            if answer.error not in FAILURES or payload.stream:
                break
            answer = await pool._answer(delivery, payload, deadline, queued, paid)
        usage = paid.entries(answer.calls, answer.sendings)
        await delivery.reply(answer.reply, store=answer.store, usage=usage)

    @property
    def _policy_ref(self) -> PolicyRef:
        return PolicyRef(name=self.name, base=self.engine.base)

    def _chain(self, payload: CompletionPayload) -> list[Pool]:
        """The pools that may answer, in their order."""
        if not self.fallbacks or payload.policy not in ("", self.name):
            return [self]
        pools = [pool for pool in (self, *self.fallbacks) if pool.breaker.allows()]
        return pools or [self]

    async def _answer(
        self,
        delivery: Delivery,
        payload: CompletionPayload,
        deadline: float,
        queued: float,
        paid: PaidCalls,
    ) -> _Answer:
        paid.answered_by(self._policy_ref, self.settings)
        try:
            request = await self._request(delivery, payload, deadline)
            if not self.engine.capabilities.announces_calls:
                await paid.hold(request)
            try:
                completions = await self._complete(request, delivery, payload, paid)
            except EngineError as error:
                if error.kind != "unknown_adapter":
                    raise
                again = await self._request(delivery, payload, deadline)
                if again.adapter == request.adapter:
                    raise
                # The trial of a version ended before the engine had the request: nothing was drawn.
                completions = await self._complete(again, delivery, payload, paid)
        except EngineBroken:
            raise
        except BudgetExceeded as error:
            return _Answer(error_reply("budget", str(error), retryable=False), store=True)
        except EngineError as error:
            log.warning("completion failed", pool=self.name, kind=error.kind, error=str(error))
            if error.kind in FAILURES:
                self.breaker.failed()
            if self.observer is not None:
                self.observer.failed(self.name, error.kind)
            reply = error_reply(error.kind, f"{self.name}: {error}", retryable=error.retryable)
            return _Answer(reply, store=not error.retryable, error=error.kind)
        self.breaker.answered()
        answer = tuple(
            call_of(
                self.name,
                self.settings,
                self.engine,
                request,
                completion,
                queued=queued,
                worker=self.worker,
                answered_at=delivery.bus.clock.now(),
            )
            for completion in completions
        )
        if self.observer is not None:
            self.observer.answered(self.name, answer)
        sendings = [completion.sending for completion in completions]
        return _Answer(calls.dump_json(answer), store=True, calls=answer, sendings=sendings)

    async def _complete(
        self,
        request: GenerateRequest,
        delivery: Delivery,
        payload: CompletionPayload,
        paid: PaidCalls,
    ) -> list[Completion]:
        if payload.stream:
            return await self._generate_streamed(request, delivery, payload.agent, paid)
        return await self._generate(request, None, paid)

    async def _request(
        self, delivery: Delivery, payload: CompletionPayload, deadline: float
    ) -> GenerateRequest:
        if not self.settings.images and any(message.parts for message in payload.messages):
            raise EngineError(f"the pool {self.name!r} takes text alone", kind="bad_request")
        name, version = split_pin(self._policy_of(payload))
        try:
            adapter = self.policies.adapter(name, version, delivery.envelope.run_id)
        except OtherVersion as error:
            raise await self._judge_lag(delivery.bus, error) from error
        options = payload.options or GenerationOptions()
        sampling = sampling_of(self.settings, payload.sampling, options, payload.seed)
        return GenerateRequest(
            id=delivery.envelope.reply_key,
            messages=payload.messages,
            tools=payload.tools,
            tool_choice=options.tool_choice,
            parallel_tool_calls=options.parallel_tool_calls,
            token_texts=options.token_texts,
            top_logprobs=options.top_logprobs,
            sampling=sampling,
            previous_ids=payload.previous_ids,
            json_schema=payload.json_schema,
            adapter=adapter,
            adapter_version=version,
            # Of the step, not of the entry: one that is cut off and asked again is answered once.
            idempotency_key=delivery.envelope.reply_key,
            deadline=time.time() + delivery.bus.clock.left(deadline),
            stream=payload.stream,
            traceparent=delivery.envelope.traceparent,
        )

    def _policy_of(self, payload: CompletionPayload) -> str:
        """Its own, where the request was handed on to it."""
        return payload.policy if pool_of(payload.policy) == self.name else self.name

    async def _judge_lag(self, bus: Bus, error: OtherVersion) -> OtherVersion:
        """The error of a version that is not served here: it may pass where it was published, or
        chosen, a moment ago."""
        try:
            policy = await load_policy(bus, error.policy)
        except PolicyError:
            return error
        trial = None if policy is None or policy.canary is None else policy.canary.version
        comes = policy is not None and error.wanted in (policy.current, trial)
        lags = comes and self.policies.may_serve(error.policy, error.wanted)
        return error.lagging() if lags else error

    async def _generate_streamed(
        self, request: GenerateRequest, delivery: Delivery, agent: str, paid: PaidCalls
    ) -> list[Completion]:
        # Of several completions only the first is published: the others have nothing to go on from.
        continues = self.engine.capabilities.continuation and request.sampling.n == 1
        stream = TokenStream(delivery, agent, self.engine.base, continues)
        try:
            return await self._generate(await stream.resume(request), stream, paid)
        except CannotContinue as error:
            # For example, a newer version of its adapter was published since another worker began.
            log.warning("begun again", pool=self.name, error=str(error))
            stream.begin_anew()
            return await self._generate(request, stream, paid)

    async def _generate(
        self, request: GenerateRequest, stream: TokenStream | None, paid: PaidCalls
    ) -> list[Completion]:
        """Tells `paid` what is about to be sent, before it is, and what can't be used."""
        completions: list[Completion] = []
        # Closing the iterator is what cancels the engine's work when this task is cancelled.
        async with aclosing(self.engine.submit(request)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    if stream is not None and event.index == 0:
                        await stream.write(event)
                elif isinstance(event, Sending):
                    await paid.sending(event)
                elif isinstance(event, Discarded | NotBilled):
                    paid.discard_call(event)
                else:
                    completions.append(event)
        if stream is not None:
            try:
                await stream.finish()
            except LeaseLost as error:
                # The reply says so too, and enters in the ledger what was paid for.
                log.warning("its text's end is not published", pool=self.name, error=str(error))
        return sorted(completions, key=lambda completion: completion.index)
