"""Any OpenAI-compatible endpoint: OpenAI itself, vLLM, SGLang, llama-server.

This module handles retries, deadlines and the reading of answers. Only the provider counts tokens:
an answer without usage is an error. Fields that the provider doesn't return (ids, true logprobs)
stay empty, and such calls are not trainable.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from loopline.agents.records import Usage
from loopline.agents.token_limits import DEFAULT, NO_LIMIT
from loopline.workers.engines.in_flight import InFlight, Ticket
from loopline.workers.engines.openai.address import Address, require_key
from loopline.workers.engines.openai.answer import Unreadable, decode, is_chunk
from loopline.workers.engines.openai.assembly import Assembly
from loopline.workers.engines.openai.complaints import complaint_in, complaint_of, error_in, quote
from loopline.workers.engines.openai.connection import Connection, Letter
from loopline.workers.engines.openai.embeddings import assembly_of
from loopline.workers.engines.openai.errors import Refused, may_be_billed, refusal_of
from loopline.workers.engines.openai.habits import Habits, Notices, advice
from loopline.workers.engines.openai.retry import RetryPolicy, UselessAnswers
from loopline.workers.engines.openai.sse import (
    DONE,
    Event,
    drain_payloads,
    is_stream,
    one_part,
    payloads_of,
)
from loopline.workers.engines.openai.transport import Answer
from loopline.workers.engines.openai.turns import Turns
from loopline.workers.engines.openai.wire import idempotency_key, most_prompt_tokens, request_body
from loopline.workers.engines.protocol import (
    Capabilities,
    Completion,
    Delta,
    Discarded,
    EngineError,
    EngineEvent,
    EngineTotals,
    GenerateRequest,
    NotBilled,
    Sending,
    refuse_unsupported,
)
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.json_bytes import json_bytes

_log = logging.getLogger(__name__)


class OpenAIEngine:
    """See the module docstring."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._address = Address.of(settings.base_url)
        self._endpoint = f"{settings.model} at {self._address.name}"
        self._habits = Habits(settings)
        self._useless = UselessAnswers(settings)
        self._log_once = Notices(self._endpoint, _log).log_once
        self._policy = RetryPolicy(
            settings.max_attempts, settings.backoff_seconds, settings.max_backoff_seconds
        )
        self._rng = random.Random()
        self._in_flight = InFlight()
        self.turns = Turns(self._endpoint)
        self._slots = asyncio.Semaphore(settings.max_concurrency)
        self._connection: Connection | None = None
        self._calls = self._prompt_tokens = self._completion_tokens = 0

    @property
    def name(self) -> str:
        return "openai"

    @property
    def base(self) -> str:
        return self._settings.model

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            token_ids=self._settings.token_ids,
            logprobs=self._settings.logprobs != "none",
            streaming=True,
            tools=True,
            tool_choice=True,
            penalties=True,
            template_options=self._settings.base_url is not None,
            top_logprobs=True,
            json_schema=self._settings.json_schema,
            json_mode=True,
            reasoning_effort=True,
            seeds=False,
            score=False,
            adapters=False,
            continuation=False,
            max_context=self._settings.max_context,
            announces_calls=True,
        )

    async def start(self) -> None:
        """Opens no connection yet. Raises EngineError of kind `auth` if the key is missing, or of
        kind `bad_request` if the environment sets an unusable proxy."""
        self._connection = Connection(
            self._settings, self._address, self._endpoint, self._read_key()
        )

    async def close(self) -> None:
        """Cancels all requests and closes every connection."""
        self._in_flight.cancel_all()
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        """See `Engine.submit`.

        Attempts that fail before any output are repeated (429, 5xx, refused connections, time-outs)
        until the attempts or the deadline run out. A stream that breaks after its first text is not
        repeated here, because the second answer could differ. An endpoint that does not support `n`
        is asked again for the missing completions.
        """
        refuse_unsupported(request, self.capabilities, self.name)
        if self._slots.locked():  # refuse at once what no endpoint accepts
            request_body(request, self._settings, self._habits)
        with self._in_flight.enter(request) as ticket:
            await ticket.take(self._slots)
            try:
                async with aclosing(self._generate(request, ticket)) as events:
                    async for event in events:
                        yield event
            finally:
                self._slots.release()

    async def cancel(self, request_id: str) -> None:
        self._in_flight.cancel(request_id)

    async def score(self, ids: Sequence[int], adapter: str | None = None) -> list[float]:
        raise EngineError(
            "an OpenAI-compatible endpoint cannot score given tokens; use the torch engine",
            kind="bad_request",
        )

    async def load_adapter(self, name: str, path: str, version: int) -> None:
        raise EngineError(
            f"adapter {name!r}: this engine cannot load adapters into an endpoint",
            kind="unknown_adapter",
        )

    async def unload_adapter(self, name: str) -> None:
        raise EngineError(f"no adapter {name!r} is loaded", kind="unknown_adapter")

    def totals(self) -> EngineTotals:
        return EngineTotals(self._calls, self._prompt_tokens, self._completion_tokens)

    def _read_key(self) -> str:
        variable = self._settings.api_key_env
        if variable is None:
            if self._settings.base_url is not None:
                return ""
            variable = "OPENAI_API_KEY"
        return require_key(variable, "the endpoint's API key", self._endpoint)

    async def _generate(
        self, request: GenerateRequest, ticket: Ticket
    ) -> AsyncGenerator[EngineEvent, None]:
        completions: list[Completion] = []
        numbers = itertools.count(1)
        try:
            while (first := len(completions)) < request.sampling.n:
                part = self._remaining_request(request, first)
                async with aclosing(self._attempts(part, ticket, numbers)) as events:
                    async for event in events:
                        if not isinstance(event, Delta | Completion):
                            yield event
                            continue
                        moved = event
                        if first:
                            moved = event.model_copy(update={"index": first + event.index})
                        if isinstance(moved, Completion):
                            completions.append(moved)
                        else:
                            yield moved
                if len(completions) - first < part.sampling.n:
                    self._habits.answers_n = False
                    self._log_once("returns only one completion per request; n requests are sent")
        except EngineError:
            for completion in completions:  # paid for, but useless without the others
                yield Discarded(usage=completion.usage, sending=completion.sending)
            raise
        self._useless.forget(request.id)
        for completion in completions:
            yield completion

    def _remaining_request(self, request: GenerateRequest, first: int) -> GenerateRequest:
        """The request for the completions from index `first` on, with another seed: the same seed
        would produce the same text."""
        sampling = request.sampling
        several = self._habits.answers_n and "n" not in self._habits.left_out
        update: dict[str, object] = {"n": sampling.n - first if several else 1}
        if first == 0 and update["n"] == sampling.n:
            return request
        if first == 0:
            return request.model_copy(update={"sampling": sampling.model_copy(update=update)})
        if sampling.seed is not None:
            update["seed"] = sampling.seed + first
        return request.model_copy(
            update={"id": f"{request.id}#{first}", "sampling": sampling.model_copy(update=update)}
        )

    async def _attempts(
        self, request: GenerateRequest, ticket: Ticket, numbers: Iterator[int]
    ) -> AsyncGenerator[EngineEvent, None]:
        if why := self._useless.exhausted(ticket.request_id):
            raise EngineError(f"{self._endpoint}: {why}", kind="garbage")
        failures = 0
        while True:
            yielded = False
            body = request_body(request, self._settings, self._habits)
            assembly = assembly_of(
                request, self._settings, self._endpoint, self._habits, self._warn_unknown_finish,
                self._open_connection.secrets,
            )  # fmt: skip
            number = next(numbers)
            content = json_bytes(body)
            sending, completions = self._sending(number, request, body, content), list[Completion]()
            # Without a limit, the usual one is assumed until the answer tells the right number.
            has_limit = self._habits.limit_field in body
            likely = sending.completion if has_limit else request.sampling.n * DEFAULT
            reserved = await self.turns.wait(
                sending.prompt, min(likely, sending.completion), ticket
            )
            useless = self._useless.unreadable(ticket.request_id)
            key = partial(idempotency_key, request, body, useless)
            with self._open_connection.preparing(
                content, request.id, key, request.traceparent
            ) as letter:
                yield sending
                try:
                    async with aclosing(
                        self._attempt(request, letter, assembly, ticket, number)
                    ) as events:
                        async for event in events:
                            # A discarded answer was paid for, but the caller saw none of it.
                            yielded = yielded or isinstance(event, Delta | Completion)
                            if isinstance(event, Completion):
                                completions.append(event)
                            yield event
                    await self.turns.answered(reserved, completions)
                    self._habits.counts_streams = self._habits.counts_streams or "stream" in body
                    return
                except EngineError as error:
                    failure = error
                except TimeoutError:
                    failure = EngineError(
                        f"{self._endpoint}: no complete answer within "
                        f"{self._settings.timeout_seconds:g} s",
                        kind="timeout",
                        retryable=True,
                    )
            await self.turns.refused(failure)
            if isinstance(failure, Refused) and not yielded:
                change = self._habits.learn(failure, body)
                if change is not None:
                    self._log_once(f"refused a request; {change}. {failure}")
                    await ticket.pause(0)
                    continue
                if setting := advice(failure, body):
                    raise EngineError(f"{failure}; {setting}", kind=failure.kind) from failure
            if "stream" in body and assembly.answered and assembly.ended and not assembly.counted:
                change = self._habits.learn_missing_usage()
                if change is not None:
                    self._log_once(f"reports no usage in streams: {change}")
            if failure.kind == "garbage":
                self._useless.add_unreadable(ticket.request_id)
            if assembly.answered:
                self._useless.add(ticket.request_id, assembly.paid(), str(failure))
            if yielded or not failure.retryable:
                raise failure
            failures += 1
            await self._wait(failures, failure, ticket)

    def _sending(
        self, number: int, request: GenerateRequest, body: dict[str, Any], content: bytes
    ) -> Sending:
        sampling = request.sampling
        limit = sampling.max_tokens
        if self._habits.limit_field not in body:  # no limit, or the endpoint refuses one
            limit = 0 if self._settings.embeddings else self._settings.max_context or NO_LIMIT
        return Sending(
            number=number,
            prompt=most_prompt_tokens(request, content, self._settings.image_tokens),
            completion=sampling.n * limit,
            has_limit=sampling.max_tokens != NO_LIMIT,
        )

    async def _wait(self, failures: int, failure: EngineError, ticket: Ticket) -> None:
        """Wait for the next attempt. Raises EngineError if there is none."""
        retry_after = failure.retry_after if isinstance(failure, Refused) else None
        wait = self._policy.wait_seconds(failures, retry_after, self._rng)
        if wait is None or self._useless.exhausted(ticket.request_id):
            raise failure
        remaining = ticket.seconds_left()
        if remaining is not None and wait >= remaining:
            raise EngineError(
                f"{failure} (the next attempt would come after the request's deadline)",
                kind=failure.kind,
                retryable=True,
            ) from failure
        _log.warning(
            "attempt %d of %d failed, next in %.2f s: %s",
            failures, self._policy.attempts, wait, failure,
        )  # fmt: skip
        await ticket.pause(wait)

    async def _attempt(
        self,
        request: GenerateRequest,
        letter: Letter,
        assembly: Assembly,
        ticket: Ticket,
        number: int,
    ) -> AsyncGenerator[EngineEvent, None]:
        """Make call number `number` of the request."""
        try:
            until = asyncio.get_running_loop().time() + self._settings.timeout_seconds
            # One wait for both head and first part: nearly all answers arrive in one piece.
            beginning = await ticket.guard(
                self._begin(request, letter, assembly), timeout=self._settings.timeout_seconds
            )
            if isinstance(beginning, bytes):
                self._read_whole(beginning, assembly)
            else:
                async with aclosing(self._deltas(*beginning, assembly, ticket, until)) as deltas:
                    async for delta in deltas:
                        if request.stream:
                            yield delta
            completions = assembly.completions(number)
        except (EngineError, TimeoutError) as error:
            if (usage := assembly.paid()) is not None:
                self._count([usage])
                yield Discarded(usage=usage, sending=number)
            elif assembly.sent and may_be_billed(error, has_answer=assembly.answered):
                why = str(error) or "no complete answer in time"
                yield Discarded(usage=None, why=why, sending=number)
            else:
                yield NotBilled(sending=number)
            raise
        self._count([item.usage for item in completions])
        for completion in completions:
            yield completion

    async def _begin(
        self, request: GenerateRequest, letter: Letter, assembly: Assembly
    ) -> bytes | tuple[Answer, AsyncGenerator[bytes | Event], bytes | Event | None]:
        """Send the request; return a short answer whole, else head, payloads and first payload."""
        connection = self._open_connection
        assembly.sent = True
        response = await connection.send(letter)
        try:
            await self.turns.learn_limits(response.headers)
            whole = None if request.stream else await connection.whole(response)
            if whole is None or is_stream(whole):
                parts = connection.parts(response) if whole is None else one_part(whole)
                return response, (payloads := payloads_of(parts)), await _next(payloads)
        except BaseException:
            await response.aclose()
            raise
        await response.aclose()
        return whole

    async def _deltas(
        self,
        response: Answer,
        payloads: AsyncGenerator[bytes | Event],
        payload: bytes | Event | None,
        assembly: Assembly,
        ticket: Ticket,
        until: float,
    ) -> AsyncGenerator[Delta, None]:
        """Feed the assembly from a stream or from a whole answer: some servers send the other form
        than requested. `until`: the deadline on the loop's clock."""

        def left() -> float:
            return max(0.0, until - asyncio.get_running_loop().time())

        try:
            while True:
                if payload is None:
                    break
                if isinstance(payload, bytes):
                    for delta in self._read_whole(payload, assembly):
                        yield delta
                    await anext(payloads, None)  # read to its end; nothing else follows
                    break
                elif payload.data.strip() == DONE:
                    assembly.end()
                    await drain_payloads(payloads)
                    break
                else:
                    for delta in self._read_chunk(payload, assembly):
                        yield delta
                await asyncio.sleep(0)  # chunks that have arrived don't hold up other calls
                payload = await ticket.guard(_next(payloads), timeout=left())
            for delta in assembly.rest():
                yield delta
            if assembly.strays and not assembly.answered:
                raise EngineError(
                    f"{self._endpoint} sent text instead of an answer: {assembly.strays}",
                    kind="unavailable",
                    retryable=True,
                )
        finally:
            await response.aclose()

    def _read_whole(self, raw: bytes, assembly: Assembly) -> list[Delta]:
        """Read an answer that is in one piece."""
        try:
            payload = decode(raw)
        except Unreadable as error:
            # A part of an answer is billed; a gateway's error page is not.
            assembly.answered = assembly.mark in raw
            page = complaint_in(raw).quoted(self._open_connection.secrets)
            raise EngineError(
                f"{self._endpoint} answered something that is not {assembly.awaited} ({error}): "
                f"{page}",
                kind="garbage",
                retryable=True,
            ) from error
        assembly.bill(payload)
        self._raise_error_in(error_in(payload))
        return assembly.add(payload, streamed=False)

    def _read_chunk(self, event: Event, assembly: Assembly) -> list[Delta]:
        """Read an event of a stream."""
        marked = event.name == "error"
        try:
            payload = decode(event.data)
        except Unreadable as error:
            if marked:
                self._raise_error_in(event.data)
            if event.data.lstrip().startswith("{"):
                raise EngineError(
                    f"{self._endpoint} sent a chunk that cannot be read ({error}): "
                    f"{quote(event.data, self._open_connection.secrets)}",
                    kind="garbage",
                    retryable=True,
                ) from error
            assembly.keep_stray(event.data)
            return []
        assembly.bill(payload)
        self._raise_error_in(error_in(payload, marked=marked, alone=False))
        if not is_chunk(payload):
            assembly.keep_stray(event.data)
        return assembly.add(payload, streamed=True)

    def _raise_error_in(self, error: object | None) -> None:
        if error is None:
            return
        secrets = self._open_connection.secrets
        raise refusal_of(complaint_of(error), None, self._endpoint, secrets, bool(secrets[0]))

    def _warn_unknown_finish(self, reason: str) -> None:
        self._log_once(f"ends completions with the unknown finish_reason {reason[:64]!r}")

    def _count(self, usages: Sequence[Usage]) -> None:
        self._calls += 1
        self._prompt_tokens += sum(usage.prompt for usage in usages)
        self._completion_tokens += sum(usage.completion for usage in usages)

    @property
    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise EngineError("the openai engine is not started", kind="internal")
        return self._connection


async def _next(payloads: AsyncIterator[bytes | Event]) -> bytes | Event | None:
    return await anext(payloads, None)


def engine(settings: ModelSettings) -> OpenAIEngine:
    """Entry point of the factory."""
    return OpenAIEngine(settings)
