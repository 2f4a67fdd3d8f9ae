"""The gpu worker: takes completion requests from the bus, lets an engine answer, and replies.

A paid completion's ledger entry is written in the same step as its reply; if the lease was lost
meanwhile, the entry is marked as discarded. Each call to an endpoint is recorded before it is sent,
so that a call that dies with its worker is not forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import structlog

from loopline.agents.records import NOTHING_CHOSEN, Call, PolicyRef
from loopline.agents.token_limits import IN_BUDGETS, NO_LIMIT
from loopline.bus import BudgetExceeded, Bus, Delivery, LeaseLost, Retry, RunEnded, error_reply
from loopline.bus.policies import PolicyError, load_policy, pool_of, split_pin
from loopline.workers import hedging
from loopline.workers.breaker import FAILURES, Breaker, EndpointBreaker
from loopline.workers.coalescing import Coalescer, as_shared
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
from loopline.workers.hedging import Beaten, Race, SlowAfter
from loopline.workers.messages import CompletionPayload, calls
from loopline.workers.paid_calls import Lane, PaidCalls
from loopline.workers.policies import OtherVersion, PolicyFollower
from loopline.workers.token_stream import TokenStream

log = structlog.get_logger("loopline.workers.gpu")


class PoolObserver(Protocol):
    """Observer of a pool's events."""

    def answered(self, pool: str, calls: Sequence[Call]) -> None: ...

    def failed(self, pool: str, kind: str) -> None: ...

    def shared(self, pool: str) -> None:
        """An equal request's call has answered this one."""
        ...

    def hedged(self, pool: str, winner: str) -> None:
        """A second request was sent; `winner` is `first`, `second`, or empty if both failed."""
        ...


@dataclass(frozen=True)
class _Query:
    """A request and its paid calls."""

    delivery: Delivery
    payload: CompletionPayload
    deadline: float
    queued: float
    """Seconds that the request waited on its stream."""
    paid: PaidCalls

    def lane(self, pool: Pool, *, hedges: Lane | None = None) -> Lane:
        policy = PolicyRef(name=pool.name, base=pool.engine.base)
        return self.paid.lane(policy, pool.settings, hedges=hedges)


@dataclass(frozen=True)
class _Draft:
    """An engine's completions for a request."""

    pool: Pool
    lane: Lane
    request: GenerateRequest
    completions: list[Completion]


@dataclass(frozen=True)
class _Answer:
    """A pool's answer to a request."""

    reply: bytes
    store: bool
    calls: tuple[Call, ...] = ()
    lane: Lane | None = None
    """Lane whose calls produced the answer."""
    sendings: Sequence[int] = ()
    shared_with: str = ""
    """Id of another request's call, if the candidates come from that call."""
    error: str = ""
    """Kind of the error."""


class Pool:
    """One model and the handler of its requests."""

    def __init__(
        self, name: str, settings: ModelSettings, engine: Engine, worker: str = ""
    ) -> None:
        """`worker` is the process's name in logs."""
        self.name = name
        self.worker = worker
        self.settings = settings
        self.engine = engine
        self.policies = PolicyFollower(name, engine, settings.base_until_published)
        self.observer: PoolObserver | None = None
        self.breaker = EndpointBreaker(
            name, Breaker(settings.breaker_failures, settings.breaker_seconds)
        )
        self.fallbacks: Sequence[Pool] = ()
        self.slow = SlowAfter(settings.hedge_after)
        self.hedge_with: Pool = self
        self.coalescer: Coalescer | None = None

    async def handle(self, delivery: Delivery) -> None:
        """Answer one request. An engine's error becomes an error reply, and the role decides.

        Raises `EngineBroken`: another worker must answer the request.
        """
        payload = delivery.payload
        assert isinstance(payload, CompletionPayload)
        with ExitStack() as stack:
            if payload.stream:
                stack.enter_context(delivery.bus.logs.writing(delivery.envelope.run_id))
            await self._handle(delivery, payload)

    async def _handle(self, delivery: Delivery, payload: CompletionPayload) -> None:
        envelope = delivery.envelope
        deadline = await delivery.deadline()
        if deadline is None:
            raise RunEnded(f"run {envelope.run_id} is over")
        queued = max(0.0, delivery.bus.clock.now() - delivery.published)
        paid = PaidCalls(delivery, payload.agent)
        answer = await self._answer_by_any(_Query(delivery, payload, deadline, queued, paid))
        usage = paid.entries(
            answer.calls, answer.lane, answer.sendings, shared_with=answer.shared_with
        )
        # An error has no record.
        await delivery.reply(
            answer.reply, store=answer.store, usage=usage, record=answer.calls or None
        )

    def _is_meant(self, payload: CompletionPayload) -> bool:
        """Whether the request is for the pool itself, not for a version or an adapter of it, which
        no other pool has."""
        return payload.policy in ("", self.name)

    async def _answer_by_any(self, query: _Query) -> _Answer:
        """Answer by this pool, or by the first fallback that has an answer."""
        if not self.fallbacks or not self._is_meant(query.payload):
            return await self._answer(query)
        answer: _Answer | None = None
        for pool in (self, *self.fallbacks):
            async with pool.breaker.attempt() as attempt:
                if attempt is None:
                    continue
                answer = await pool._answer(query)
                attempt.outcome = answer.error
            if answer.error not in FAILURES or query.payload.stream:
                return answer
        if answer is None:  # none of them may be asked: asking this one is better than no answer
            async with self.breaker.attempt(forced=True) as attempt:
                answer = await self._answer(query)
                if attempt is not None:
                    attempt.outcome = answer.error
        return answer

    async def _answer(self, query: _Query) -> _Answer:
        try:
            return await self._answer_once(query)
        except EngineBroken:
            raise
        except BudgetExceeded as error:
            reply = error_reply("budget", str(error), retryable=False)
            return _Answer(reply, store=True, error="budget")
        except EngineError as error:
            log.warning("completion failed", pool=self.name, kind=error.kind, error=str(error))
            if self.observer is not None:
                self.observer.failed(self.name, error.kind)
            reply = error_reply(error.kind, f"{self.name}: {error}", retryable=error.retryable)
            return _Answer(reply, store=not error.retryable, error=error.kind)

    async def _answer_once(self, query: _Query) -> _Answer:
        """Answer by a separate call, or by the call of an equal request in progress."""
        flight, result = None, _Answer(b"", store=False)
        if self.coalescer is not None and self._is_meant(query.payload):
            request = await self._request(query.delivery, query.payload, query.deadline)
            flight = await self.coalescer.flight_of(request, query.delivery)
        if self.coalescer is None or flight is None:
            return await self._answer_alone(query)

        async def alone() -> Sequence[Call]:
            nonlocal result
            result = await self._answer_alone(query)
            return result.calls

        clock = query.delivery.bus.clock
        shared = await self.coalescer.answer(flight, alone, clock.left(query.deadline))
        if shared is None:
            return result
        key, at = query.delivery.envelope.reply_key, clock.now()
        answer = tuple(
            as_shared(call, key, index, queued=query.queued, at=at)
            for index, call in enumerate(shared)
        )
        log.info("answered by an equal request", pool=self.name, call=shared[0].id)
        if self.observer is not None:
            self.observer.shared(self.name)
        reply = calls.dump_json(answer)
        return _Answer(reply, store=True, calls=answer, shared_with=shared[0].id)

    async def _answer_alone(self, query: _Query) -> _Answer:
        draft = await self._draft(query)
        return draft.pool._answer_of(draft, query)

    def _answer_of(self, draft: _Draft, query: _Query) -> _Answer:
        answer = tuple(
            call_of(
                self.name,
                self.settings,
                self.engine,
                draft.request,
                completion,
                queued=query.queued,
                worker=self.worker,
                answered_at=query.delivery.bus.clock.now(),
            )
            for completion in draft.completions
        )
        if self.observer is not None:
            self.observer.answered(self.name, answer)
        return _Answer(
            calls.dump_json(answer),
            store=True,
            calls=answer,
            lane=draft.lane,
            sendings=[completion.sending for completion in draft.completions],
        )

    async def _draft(self, query: _Query) -> _Draft:
        """Draft an answer by this pool, or also by another one if this pool is slow."""
        race, lane, stream = Race(), query.lane(self), query.payload.stream
        after = self.slow.seconds(stream=stream) if self._is_meant(query.payload) else None
        first = self._lead(query, lane, race, 0)
        if after is None:
            draft = await first
        else:
            draft = await self._hedge(query, lane, race, first, after)
        if lane.sent.is_set():
            self.slow.add(race.decided_at - lane.sent_at, stream=stream)
        return draft

    async def _hedge(
        self,
        query: _Query,
        lane: Lane,
        race: Race,
        first: Coroutine[Any, Any, _Draft],
        after: float,
    ) -> _Draft:
        other = self.hedge_with

        async def second() -> _Draft:
            hedge_lane = query.lane(other, hedges=lane)
            if other is self:
                return await other._lead(query, hedge_lane, race, 1)
            async with other.breaker.attempt() as attempt:
                if attempt is None:
                    raise EngineError(f"{other.name}: its breaker is open", kind="unavailable")
                try:
                    draft = await other._lead(query, hedge_lane, race, 1)
                except EngineError as error:
                    attempt.outcome = error.kind
                    raise
                attempt.outcome = ""
                return draft

        def is_tolerated(number: int, error: BaseException) -> bool:
            if isinstance(error, EngineBroken):
                return False
            if number == 1:
                # A missing hedge does no harm; for example, the budget has no room for both calls.
                log.info("hedge failed", pool=other.name, error=str(error))
                return isinstance(error, EngineError | BudgetExceeded | Retry)
            return isinstance(error, EngineError) and error.kind in {*FAILURES, "rate_limited"}

        try:
            return await hedging.run(
                race, first, second, sent=lane.sent, after=after, is_tolerated=is_tolerated
            )
        finally:
            if lane.terms.hedge:
                winner = "" if race.winner is None else ("first", "second")[race.winner]
                log.info("hedged", pool=self.name, after=round(after, 3), winner=winner)
                if self.observer is not None:
                    self.observer.hedged(self.name, winner)

    async def _lead(self, query: _Query, lane: Lane, race: Race, number: int) -> _Draft:
        """Draft an answer by this pool's engine, as the race's entrant of that number."""
        limit, lower = NO_LIMIT, [*IN_BUDGETS]
        while True:
            try:
                return await self._lead_within(limit, query, lane, race, number)
            except BudgetExceeded:
                if not lower or not self._has_no_limit(query.payload):
                    raise
                limit = lower.pop(0)

    def _has_no_limit(self, payload: CompletionPayload) -> bool:
        options = payload.options or NOTHING_CHOSEN
        sampling = sampling_of(self.settings, payload.sampling, options, payload.seed)
        return sampling.max_tokens == NO_LIMIT

    async def _lead_within(
        self, limit: int, query: _Query, lane: Lane, race: Race, number: int
    ) -> _Draft:
        """Draft an answer, of at most `limit` tokens if the request itself has no limit."""
        delivery, payload = query.delivery, query.payload
        request = await self._request(delivery, payload, query.deadline, limit)
        if not self.engine.capabilities.announces_calls:
            await lane.hold(request)
        claim = partial(race.claim, number)
        sent_as = request if number == 0 else _as_hedge(request)
        try:
            completions = await self._complete(sent_as, delivery, payload, lane, claim)
        except EngineError as error:
            if error.kind != "unknown_adapter":
                raise
            again = await self._request(delivery, payload, query.deadline, limit)
            if again.adapter == request.adapter:
                raise
            # The version's trial ended before the engine got the request: nothing was sampled.
            request = again
            completions = await self._complete(request, delivery, payload, lane, claim)
        return _Draft(self, lane, request, completions)

    async def _complete(
        self,
        request: GenerateRequest,
        delivery: Delivery,
        payload: CompletionPayload,
        lane: Lane,
        claim: Callable[[], None],
    ) -> list[Completion]:
        if payload.stream:
            return await self._generate_streamed(request, delivery, payload.agent, lane, claim)
        return await self._generate(request, None, lane, claim)

    async def _request(
        self,
        delivery: Delivery,
        payload: CompletionPayload,
        deadline: float,
        limit: int = NO_LIMIT,
    ) -> GenerateRequest:
        if not self.settings.images and any(message.parts for message in payload.messages):
            raise EngineError(f"the pool {self.name!r} accepts only text", kind="bad_request")
        name, version = split_pin(self._policy_of(payload))
        try:
            adapter = self.policies.adapter(name, version, delivery.envelope.run_id)
        except OtherVersion as error:
            raise await self._judge_lag(delivery.bus, error) from error
        options = payload.options or NOTHING_CHOSEN
        sampling = sampling_of(self.settings, payload.sampling, options, payload.seed)
        if sampling.max_tokens == NO_LIMIT != limit:
            sampling = sampling.model_copy(update={"max_tokens": limit})
        return GenerateRequest(
            id=delivery.envelope.reply_key,
            messages=payload.messages,
            tools=payload.tools,
            tool_choice=options.tool_choice,
            parallel_tool_calls=options.parallel_tool_calls,
            token_texts=options.token_texts,
            top_logprobs=options.top_logprobs,
            template_options=options.template_options,
            sampling=sampling,
            previous_ids=payload.previous_ids,
            json_schema=payload.json_schema,
            adapter=adapter,
            adapter_version=version,
            # The key is the step's, not the entry's: a request that is sent again is answered once.
            idempotency_key=delivery.envelope.reply_key,
            deadline=time.time() + delivery.bus.clock.left(deadline),
            stream=payload.stream,
            traceparent=delivery.envelope.traceparent,
        )

    def _policy_of(self, payload: CompletionPayload) -> str:
        """Return the requested policy, or the pool's own if the request was passed on to this
        pool."""
        return payload.policy if pool_of(payload.policy) == self.name else self.name

    async def _judge_lag(self, bus: Bus, error: OtherVersion) -> OtherVersion:
        """Return the error for a version that is not served here, retryable if the version was
        published or chosen only a moment ago."""
        try:
            policy = await load_policy(bus, error.policy)
        except PolicyError:
            return error
        trial = None if policy is None or policy.canary is None else policy.canary.version
        is_in_use = policy is not None and error.wanted in (policy.current, trial)
        lags = is_in_use and self.policies.may_serve(error.policy, error.wanted)
        return error.lagging() if lags else error

    async def _generate_streamed(
        self,
        request: GenerateRequest,
        delivery: Delivery,
        agent: str,
        lane: Lane,
        claim: Callable[[], None],
    ) -> list[Completion]:
        # Only the first of several completions is published; the others have no ids to continue.
        continues = self.engine.capabilities.continuation and request.sampling.n == 1
        stream = TokenStream(delivery, agent, self.engine.base, continues)
        try:
            return await self._generate(await stream.resume(request), stream, lane, claim)
        except CannotContinue as error:
            # For example, a newer adapter version was published after the text was started.
            log.warning("generation restarted", pool=self.name, error=str(error))
            stream.restart()
            return await self._generate(request, stream, lane, claim)

    async def _generate(
        self,
        request: GenerateRequest,
        stream: TokenStream | None,
        lane: Lane,
        claim: Callable[[], None],
    ) -> list[Completion]:
        """Generate the completions of a request. Calls are reported to `lane` before they are sent,
        and so is the usage of unusable answers. Raises `Beaten` if another request was answered
        first."""
        completions: list[Completion] = []
        # Closing the iterator cancels the engine's work when this task is cancelled.
        async with aclosing(self.engine.submit(request)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    if stream is not None and event.index == 0:
                        claim()
                        await stream.write(event)
                elif isinstance(event, Sending):
                    await lane.sending(event)
                elif isinstance(event, Discarded | NotBilled):
                    lane.discard_call(event)
                else:
                    completions.append(event)
        try:
            claim()
        except Beaten:
            for completion in completions:
                lane.discard_call(Discarded(usage=completion.usage, sending=completion.sending))
            raise
        if stream is not None:
            try:
                await stream.finish()
            except LeaseLost as error:
                # The reply fails in the same way, and its ledger entries record the paid calls.
                log.warning("end of the text not published", pool=self.name, error=str(error))
        return sorted(completions, key=lambda completion: completion.index)


def _as_hedge(request: GenerateRequest) -> GenerateRequest:
    """Return the request as a separate one, for an endpoint that answers a repeated request by the
    one in progress."""
    return request.model_copy(
        update={
            "id": f"{request.id}/hedge",
            "idempotency_key": f"{request.idempotency_key}/hedge",
        }
    )
