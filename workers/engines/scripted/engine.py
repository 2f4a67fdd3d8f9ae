"""The scripted engine: deterministic, without a model, for tests and load benches.

It behaves like a local model with Qwen's tool-call markup: prompts are ChatML, ids decode to the
exact text, streams arrive token by token, `score` agrees with the logprobs of `submit`. Its text
comes from `script`; the ids and logprobs are made up (see `PackedText`) but consistent.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from loopline.agents.records import FinishReason, Message, SamplingParams, ToolSpec, Usage
from loopline.workers.engines.faults import FaultChooser, FaultKind, unit_interval
from loopline.workers.engines.in_flight import InFlight, Ticket
from loopline.workers.engines.protocol import (
    AnswerEvent,
    CannotContinue,
    Capabilities,
    Completion,
    Delta,
    EngineError,
    EngineTotals,
    GenerateRequest,
    context_overflow,
    refuse_call_under_schema,
    refuse_unsupported,
)
from loopline.workers.engines.scripted.script import (
    ScriptedReply,
    conversation_key,
    offered,
    scripted_reply,
)
from loopline.workers.engines.scripted.script_worlds import WorldsScript
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.chat_prompt import Prompt, build_prompt
from loopline.workers.engines.text.text_stream import TextStream, token_texts
from loopline.workers.engines.text.tool_markup import calls_of, write_tool_call

STREAM_TICK_SECONDS = 0.01
"""Deltas of a rate-limited stream are bundled to at most a hundred per second, as a real engine
does."""


class ScriptedEngine:
    """See the module docstring. `settings.scripted` sets how slow, wrong and faulty it is."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._options = settings.scripted
        self._codec = PackedText()
        self._faults = FaultChooser(self._options.faults)
        self._worlds = WorldsScript(self._options.worlds)
        self._in_flight = InFlight()
        self._slots = asyncio.Semaphore(settings.max_concurrency)
        self._calls = self._prompt_tokens = self._completion_tokens = self._abandoned = 0

    @property
    def name(self) -> str:
        return "scripted"

    @property
    def base(self) -> str:
        return self._settings.model

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            token_ids=True,
            logprobs=True,
            streaming=True,
            tools=True,
            tool_choice=True,
            penalties=False,
            top_logprobs=False,
            json_schema=True,
            seeds=True,
            score=True,
            adapters=False,
            continuation=True,
            max_context=self._settings.max_context,
        )

    async def start(self) -> None:
        """Loads only the worlds of the script. Raises `EngineError` for unknown ones."""
        try:
            self._worlds.learn()
        except ValueError as error:
            raise EngineError(f"scripted.worlds: {error}", kind="bad_request") from error

    async def close(self) -> None:
        """Cancels all requests."""
        self._in_flight.cancel_all()

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[AnswerEvent]:
        """See `Engine.submit`. Injected faults: 429 `rate_limited`, 500 and a truncated answer
        `unavailable`, a hang `timeout`, broken JSON and missing usage `garbage`."""
        refuse_unsupported(request, self.capabilities, self.name)
        refuse_call_under_schema(request)
        rendered = render_chatml(request.messages, request.callable_tools)
        has_known_ids = self._codec.can_decode(request.previous_ids)
        try:
            prompt = build_prompt(
                rendered, request.previous_ids if has_known_ids else (), self._codec
            )
        except ValueError as error:
            raise EngineError(f"request {request.id}: {error}", kind="bad_request") from error
        limit = self._settings.max_context
        if limit is not None and len(prompt.ids) >= limit:
            raise context_overflow(request.id, len(prompt.ids), limit)
        fault = self._faults.choose(
            conversation_key(request.messages, request.tools, request.sampling, request.json_schema)
        )
        with self._in_flight.enter(request) as ticket:
            await ticket.take(self._slots)
            try:
                await self._fail_at_once(fault, ticket)
                async with aclosing(self._generate(request, prompt, fault, ticket)) as events:
                    async for event in events:
                        yield event
            finally:
                self._slots.release()

    async def cancel(self, request_id: str) -> None:
        self._in_flight.cancel(request_id)

    async def score(self, ids: Sequence[int], adapter: str | None = None) -> list[float]:
        """See `Engine.score`: the same made-up numbers that `submit` reports."""
        if adapter is not None:
            raise EngineError(f"no adapter {adapter!r} is loaded", kind="unknown_adapter")
        return [_logprob(before, token) for before, token in itertools.pairwise(ids)]

    async def load_adapter(self, name: str, path: str, version: int) -> None:
        raise EngineError("the scripted engine has no weights to adapt", kind="unknown_adapter")

    async def unload_adapter(self, name: str) -> None:
        raise EngineError(f"no adapter {name!r} is loaded", kind="unknown_adapter")

    def totals(self) -> EngineTotals:
        return EngineTotals(
            self._calls, self._prompt_tokens, self._completion_tokens, self._abandoned
        )

    async def _fail_at_once(self, fault: FaultKind | None, ticket: Ticket) -> None:
        match fault:
            case "rate_limited":
                raise EngineError("scripted: 429", kind="rate_limited", retryable=True)
            case "server_error":
                raise EngineError("scripted: 500", kind="unavailable", retryable=True)
            case "malformed_json":
                raise EngineError("scripted: not JSON", kind="garbage", retryable=True)
            case "missing_usage":
                raise EngineError("scripted: no usage", kind="garbage")
            case "hang":
                seconds = self._settings.timeout_seconds
                await ticket.pause(seconds)
                raise EngineError(
                    f"scripted: no answer in {seconds} s", kind="timeout", retryable=True
                )
            case _:
                return

    async def _generate(
        self,
        request: GenerateRequest,
        prompt: Prompt,
        fault: FaultKind | None,
        ticket: Ticket,
    ) -> AsyncGenerator[AnswerEvent]:
        started = time.perf_counter()
        await ticket.pause(self._options.latency_seconds)
        first_token = time.perf_counter() - started
        generations: list[_Generation] = []
        finished = False
        try:
            for index in range(request.sampling.n):
                ids, cut = self._output_ids(request, index, len(prompt.ids), fault)
                generation = _Generation(ids, cut, request, self._codec)
                generations.append(generation)
                async with aclosing(
                    self._play(generation, fault, ticket, stream=request.stream)
                ) as deltas:
                    async for delta in deltas:
                        if request.stream:
                            yield delta.model_copy(update={"index": index})
                yield self._completion(
                    request, prompt, generation, index, first_token, time.perf_counter() - started
                )
            finished = True
        finally:
            generated = sum(len(generation.output_ids) for generation in generations)
            if finished:
                self._calls += 1
                self._prompt_tokens += len(prompt.ids)
                self._completion_tokens += generated
            else:
                self._abandoned += generated

    async def _play(
        self, generation: _Generation, fault: FaultKind | None, ticket: Ticket, *, stream: bool
    ) -> AsyncGenerator[Delta]:
        """Deltas at the configured speed; at full speed one per token."""
        rate = self._options.tokens_per_second
        remaining = generation.remaining
        if not stream:
            per_tick = max(1, len(remaining))
        else:
            per_tick = 1 if rate is None else max(1, round(rate * STREAM_TICK_SECONDS))
        for start in range(0, len(remaining), per_tick):
            if fault == "truncated_stream" and 2 * start >= len(remaining):
                raise EngineError("scripted: cut off", kind="unavailable", retryable=True)
            chunk = remaining[start : start + per_tick]
            if rate is not None:
                await ticket.pause(len(chunk) / rate)
            delta = generation.take(chunk)
            if delta.text or delta.ids:
                yield delta
            if generation.stopped:
                break
        await ticket.pause(0)
        if fault == "truncated_stream":
            raise EngineError("scripted: cut off", kind="unavailable", retryable=True)
        if rest := generation.finish():
            yield Delta(text=rest)

    def _memorized_answer(self, request: GenerateRequest, index: int) -> str | None:
        for answer in self._options.answers:
            conversation = "\n".join(message.content for message in request.messages)
            if all(text in conversation for text in answer.where):
                return answer.says[index % len(answer.says)]
        return None

    def _output_ids(
        self, request: GenerateRequest, index: int, prompt_tokens: int, fault: FaultKind | None
    ) -> tuple[list[int], bool]:
        """The ids of the script's reply before stop strings, and whether a limit truncates them."""
        reply = self._reply(request, index)
        if request.json_schema is None:
            reply = reply.constrained_to(
                request.tools, request.tool_choice, parallel=request.parallel_tool_calls
            )
        parts = [reply.text]
        for call in reply.calls:
            markup = write_tool_call(call.name, call.arguments)
            parts.append(break_json(markup) if fault == "malformed_tool_call" else markup)
        ids = self._codec.encode("\n".join(parts))
        if list(request.resume_ids) != ids[: len(request.resume_ids)]:
            raise CannotContinue(
                f"request {request.id}: the ids to continue from are not what this engine would "
                "have generated; ask again from the start"
            )
        room = request.sampling.max_tokens
        if self._settings.max_context is not None:
            room = min(room, self._settings.max_context - prompt_tokens)
        return ids[:room], len(ids) > room

    def _reply(self, request: GenerateRequest, index: int) -> ScriptedReply:
        memorized = self._memorized_answer(request, index)
        if memorized is not None:
            return ScriptedReply(memorized)
        first = request.messages[0]
        system = first.content if first.role == "system" else ""
        heed = next((heed for heed in self._options.heeds if heed.phrase in system), None)
        if heed is not None and heed.answer is not None:
            return ScriptedReply(heed.answer)
        rate = self._options.mistake_rate
        if heed is not None and heed.mistake_rate is not None:
            rate = heed.mistake_rate
        world_reply = self._worlds.reply(
            request.messages, mistake_rate=rate, as_json=request.json_schema is not None
        )
        if world_reply is not None:
            return ScriptedReply(world_reply)
        return scripted_reply(
            request.messages,
            offered(request.tools, request.tool_choice),
            seed=reply_seed(request.sampling, index),
            mistake_rate=rate,
            json_schema=request.json_schema,
        )

    def _completion(
        self,
        request: GenerateRequest,
        prompt: Prompt,
        generation: _Generation,
        index: int,
        first_token: float,
        total: float,
    ) -> Completion:
        text, ids = generation.text, generation.output_ids
        calls = calls_of(request, index, text)
        reason: FinishReason = "length" if generation.cut else "stop"
        if calls and reason == "stop":
            reason = "tool_calls"
        logprobs = tuple(
            _logprob(before, token)
            for before, token in zip([prompt.ids[-1], *ids], ids, strict=False)
        )
        return Completion(
            index=index,
            text=text,
            tool_calls=calls,
            prompt_ids=tuple(prompt.ids),
            output_ids=tuple(ids),
            logprobs=logprobs,
            raw_logprobs=logprobs,
            tokens=token_texts(self._codec, ids) if request.token_texts else (),
            finish_reason=reason,
            usage=Usage(
                prompt=len(prompt.ids) if index == 0 else 0,
                cached=prompt.reused if index == 0 else 0,
                completion=len(ids),
                source="engine",
            ),
            first_token_seconds=first_token,
            decode_seconds=max(0.0, total - first_token),
            extends_previous=prompt.extends_previous,
        )


class _Generation:
    """One completion while it is being generated."""

    def __init__(
        self, ids: list[int], cut: bool, request: GenerateRequest, codec: PackedText
    ) -> None:
        self.cut = cut
        resumed = len(request.resume_ids)
        self._stream = TextStream(codec, request.sampling.stop)
        for token in ids[:resumed]:
            self._stream.push(token)
        self.output_ids = ids[:resumed]
        self.remaining = ids[resumed:]

    @property
    def text(self) -> str:
        return self._stream.text

    @property
    def stopped(self) -> bool:
        return self._stream.stopped

    def take(self, chunk: Sequence[int]) -> Delta:
        """Generate the next tokens, up to a stop string."""
        texts: list[str] = []
        token_ids: list[int] = []
        for token in chunk:
            token_ids.append(token)
            texts.append(self._stream.push(token))
            if self._stream.stopped:
                self.cut = False
                break
        self.output_ids.extend(token_ids)
        return Delta(text="".join(texts), ids=tuple(token_ids))

    def finish(self) -> str:
        return self._stream.finish()


def reply_seed(sampling: SamplingParams, index: int) -> int:
    """Greedy decoding ignores seed and index, as a model would; sampling depends on both."""
    if sampling.temperature == 0:
        return 0
    return int(unit_interval("reply", sampling.seed or 0, index) * 2**32)


def break_json(text: str) -> str:
    """Remove the last closing brace, like a model that miscounts braces."""
    head, _, tail = text.rpartition("}")
    return head + tail


def render_chatml(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    """The conversation as ChatML. Appending turns only extends the text."""
    parts: list[str] = []
    if tools:
        parts.append(f"<|im_start|>tools\n{' '.join(tool.name for tool in tools)}<|im_end|>\n")
    for message in messages:
        body = message.content
        if message.raw_text is not None:
            body = message.raw_text
        elif message.tool_calls:
            calls = [write_tool_call(c.name, c.arguments or {}) for c in message.tool_calls]
            body = "\n".join([body, *calls])
        parts.append(f"<|im_start|>{message.role}\n{body}<|im_end|>\n")
    return "".join(parts) + "<|im_start|>assistant\n"


def _logprob(before: int, token: int) -> float:
    return -unit_interval("logprob", before, token)


def engine(settings: ModelSettings) -> ScriptedEngine:
    """Entry point of the factory."""
    return ScriptedEngine(settings)


BYTES_PER_TOKEN = 3


class PackedText:
    """A `TextCodec` without a vocabulary file: each id holds up to three bytes of UTF-8 text.

    They are not a real tokenizer's ids, but they behave like them in important respects: they
    decode to the exact text, a character can span two ids, and the ids of two texts can be
    concatenated. The id is `length * 2**24 + bytes`, big-endian.
    """

    def encode(self, text: str, after: int | None = None) -> list[int]:
        data = text.encode()
        return [
            (len(chunk) << 24) | int.from_bytes(chunk, "big")
            for chunk in (
                data[start : start + BYTES_PER_TOKEN]
                for start in range(0, len(data), BYTES_PER_TOKEN)
            )
        ]

    def decode(self, ids: Sequence[int], after: int | None = None) -> str:
        """Raises ValueError for a number that is not an id of this codec."""
        return b"".join(map(_bytes_of, ids)).decode(errors="replace")

    def can_decode(self, ids: Sequence[int]) -> bool:
        """Whether all numbers are ids of this codec."""
        return all(map(_is_id, ids))


def _is_id(token: int) -> bool:
    length = token >> 24
    return 1 <= length <= BYTES_PER_TOKEN and not (token & 0xFFFFFF) >> (8 * length)


def _bytes_of(token: int) -> bytes:
    if not _is_id(token):
        raise ValueError(f"{token} is not a token id of the scripted engine")
    return (token & 0xFFFFFF).to_bytes(token >> 24, "big")
