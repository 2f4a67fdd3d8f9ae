"""The gpu worker: takes completion requests from the bus, lets an engine answer, replies.

Every completion that was paid for is entered in the ledger in the same step as its reply; one
whose lease was lost meanwhile is entered as discarded.
"""

from __future__ import annotations

import time
from contextlib import aclosing

import structlog

from agents.records import Call, PolicyRef, Usage
from bus import Delivery, LeaseLost, RunEnded, error_reply
from workers.completions import call_of, discarded_entry, usage_entry
from workers.engines.protocol import (
    CannotContinue,
    Completion,
    Delta,
    Discarded,
    Engine,
    EngineBroken,
    EngineError,
    GenerateRequest,
)
from workers.engines.settings import ModelSettings
from workers.messages import CompletionPayload, calls
from workers.policies import PolicyFollower
from workers.token_stream import TokenStream

log = structlog.get_logger("workers.gpu")


class Pool:
    """One model and the handler of its requests."""

    def __init__(self, name: str, settings: ModelSettings, engine: Engine) -> None:
        self.name = name
        self.settings = settings
        self.engine = engine
        self.policies = PolicyFollower(name, engine, settings.base_until_published)

    async def handle(self, delivery: Delivery) -> None:
        """Answer one request. An engine's error becomes an error reply: the role decides.

        Raises `EngineBroken`: the request is for another worker to answer.
        """
        payload = delivery.payload
        assert isinstance(payload, CompletionPayload)
        envelope = delivery.envelope
        deadline = await delivery.bus.deadline_of(envelope.run_id)
        if deadline is None:
            raise RunEnded(f"run {envelope.run_id} is over")
        queued = max(0.0, delivery.bus.clock.now() - delivery.published)
        in_vain: list[Usage] = []
        answer: tuple[Call, ...] = ()
        try:
            request = self._request(delivery, payload, deadline)
            if payload.stream:
                done = await self._streamed(request, delivery, payload.agent, in_vain)
            else:
                done = await self._generate(request, None, in_vain)
        except EngineBroken:
            raise
        except EngineError as error:
            log.warning("completion failed", pool=self.name, kind=error.kind, error=str(error))
            reply = error_reply(error.kind, f"{self.name}: {error}", retryable=error.retryable)
            store = not error.retryable
        else:
            answer = tuple(
                call_of(self.name, self.settings, self.engine, request, each, queued=queued)
                for each in done
            )
            reply, store = calls.dump_json(answer), True
        step = (envelope.run_id, payload.agent, envelope.turn, envelope.branch)
        policy = PolicyRef(name=self.name, base=self.engine.base)
        entries = [
            *(
                discarded_entry(*step, envelope.reply_key, policy, usage, self.settings)
                for usage in in_vain
            ),
            *(usage_entry(*step, call) for call in answer),
        ]
        await delivery.reply(
            reply,
            store=store,
            usage=[
                (
                    entry.model_dump_json().encode(),
                    entry.model_copy(update={"discarded": True}).model_dump_json().encode(),
                )
                for entry in entries
            ],
        )

    def _request(
        self, delivery: Delivery, payload: CompletionPayload, deadline: float
    ) -> GenerateRequest:
        sampling = payload.sampling or self.settings.sampling()
        if sampling.seed is None:
            sampling = sampling.model_copy(update={"seed": payload.seed})
        return GenerateRequest(
            id=delivery.envelope.reply_key,
            messages=payload.messages,
            tools=payload.tools,
            sampling=sampling,
            previous_ids=payload.previous_ids,
            json_schema=payload.json_schema,
            adapter=self.policies.adapter(payload.policy or self.name),
            deadline=time.time() + delivery.bus.clock.left(deadline),
            stream=payload.stream,
        )

    async def _streamed(
        self, request: GenerateRequest, delivery: Delivery, agent: str, in_vain: list[Usage]
    ) -> list[Completion]:
        # Of several completions only the first is published: the others have nothing to go on from.
        continues = self.engine.capabilities.continuation and request.sampling.n == 1
        stream = TokenStream(delivery, agent, self.engine.base, continues)
        try:
            return await self._generate(await stream.resume(request), stream, in_vain)
        except CannotContinue as error:
            # For example, a newer version of its adapter was published since another worker began.
            log.warning("begun anew", pool=self.name, error=str(error))
            stream.begin_anew()
            return await self._generate(request, stream, in_vain)

    async def _generate(
        self, request: GenerateRequest, stream: TokenStream | None, in_vain: list[Usage]
    ) -> list[Completion]:
        """Adds to `in_vain` what was paid for and can't be used."""
        done: list[Completion] = []
        # Closing the iterator is what cancels the engine's work when this task is cancelled.
        async with aclosing(self.engine.submit(request)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    if stream is not None and event.index == 0:
                        await stream.write(event)
                elif isinstance(event, Discarded):
                    in_vain.append(event.usage)
                else:
                    done.append(event)
        if stream is not None:
            try:
                await stream.finish()
            except LeaseLost as error:
                # The reply says so too, and enters in the ledger what was paid for.
                log.warning("its text's end is not published", pool=self.name, error=str(error))
        return sorted(done, key=lambda each: each.index)
