"""A request in the scheduler, and its completions: their tokens, their text, their part in memory,
and when they finish."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loopline.agents.records import FinishReason, Usage
from loopline.agents.thinking import split_thoughts
from loopline.workers.engines.grammar.matcher import Matcher
from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.backend import Loaded
from loopline.workers.engines.local.sampling import (
    RowSampling,
    Sampled,
    likeliest,
    sample_given_token,
)
from loopline.workers.engines.protocol import (
    AnswerEvent,
    CannotContinue,
    Completion,
    Delta,
    EngineError,
    GenerateRequest,
    context_overflow,
)
from loopline.workers.engines.text.chat_prompt import Prompt, TextCodec, build_prompt
from loopline.workers.engines.text.text_stream import TextStream, token_texts
from loopline.workers.engines.text.tool_markup import calls_of

LONGEST_TOKEN = 256
"""Characters: no common vocabulary has a longer token (128 blanks, in Qwen's and Llama 3's). A text
with more than this per token of the context is refused without being tokenized."""


@dataclass(eq=False)
class Job:
    """One request on its way through the scheduler. The event loop owns `events`."""

    request: GenerateRequest
    events: asyncio.Queue[AnswerEvent | EngineError]
    seed: int
    adapter: AdapterVersion | None = None
    matcher: Matcher | None = None
    """Matcher at the beginning of the grammar; each row follows its own copy."""
    rows: list[Row] = field(default_factory=list["Row"])
    """One row per completion; empty before the prompt is built."""
    generated: int = 0

    @property
    def begun(self) -> bool:
        """Whether any of its rows has a token."""
        return bool(self.rows and self.rows[0].output_ids)

    def prepare(self, model: Loaded) -> None:
        """Build the prompt and the rows. Raises EngineError."""
        started = time.perf_counter()
        prompt, sampling = _prompt(self.request, model), self.request.sampling
        self.rows = [
            Row(
                job=self,
                index=index,
                prompt=prompt,
                sampling=RowSampling(
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    top_k=sampling.top_k,
                    seed=self.seed,
                    index=index,
                    frequency_penalty=sampling.frequency_penalty,
                    presence_penalty=sampling.presence_penalty,
                ),
                limit=min(sampling.max_tokens, model.max_context - len(prompt.ids)),
                end_ids=model.end_ids,
                codec=model.codec,
                started=started,
                matcher=None if self.matcher is None else self.matcher.copy(),
            )
            for index in range(sampling.n)
        ]


def _prompt(request: GenerateRequest, model: Loaded) -> Prompt:
    try:
        rendered = model.render(request.messages, request.callable_tools, request.template_options)
    except Exception as error:  # an untrusted template can raise anything
        raise EngineError(
            f"request {request.id}: the model's chat template refuses the conversation: {error}",
            kind="bad_request",
        ) from error
    # A template with an endless loop still blocks the thread: only ending the process stops it. It
    # comes with the weights, and anyone who serves them trusts it that far.
    if len(rendered) > LONGEST_TOKEN * model.max_context:
        raise EngineError(
            f"request {request.id}: the prompt has {len(rendered)} characters, more than the "
            f"model's context of {model.max_context} tokens can hold; shorten it",
            kind="context_overflow",
        )
    check_ids(request.id, request.resume_ids, model)
    # The model does not have these ids: the conversation started with another one.
    is_valid = all(0 <= token < model.vocabulary for token in request.previous_ids)
    prompt = build_prompt(rendered, request.previous_ids if is_valid else (), model.codec)
    used = len(prompt.ids) + len(request.resume_ids)
    if used >= model.max_context:
        raise context_overflow(request.id, used, model.max_context)
    if not prompt.ids:
        raise EngineError(
            f"request {request.id}: the chat template produced an empty prompt", kind="bad_request"
        )
    check_ids(request.id, [max(prompt.ids)], model)
    return prompt


def check_ids(request_id: str, ids: Sequence[int], model: Loaded) -> None:
    """Raises EngineError `bad_request` for an id that the model does not have."""
    for token in ids:
        if not 0 <= token < model.vocabulary:
            raise EngineError(
                f"request {request_id}: {token} is not a token id of {model.base!r} "
                f"(vocabulary of {model.vocabulary})",
                kind="bad_request",
            )


@dataclass(eq=False)
class Row:
    """Completion `index` of a request. `limit` is its maximum number of tokens: max_tokens or the
    rest of the context, whichever is less."""

    job: Job
    index: int
    prompt: Prompt
    sampling: RowSampling
    limit: int
    end_ids: frozenset[int]
    codec: TextCodec
    started: float
    """Monotonic time in seconds when its prompt was built: the youngest row is preempted first."""
    matcher: Matcher | None = None
    """Position in the grammar of the request's JSON schema, or of its tools."""
    cached: int = 0
    """Tokens of its prompt that were already in memory."""
    output_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    raw_logprobs: list[float] = field(default_factory=list[float])
    alternatives: list[list[tuple[int, float]]] = field(
        default_factory=list[list[tuple[int, float]]]
    )
    """Most likely tokens at the position of each output token, if requested: id and
    log-probability."""
    finish_reason: FinishReason | None = None
    rescored: bool = False
    """Whether `raw_logprobs` come from a separate pass over prompt and output."""

    # State in memory. Invariant while the row runs: ids[:fed] have keys and values, and ids ==
    # [*prompt.ids, *output_ids, *the last `unchecked` ids to continue from].
    ids: list[int] = field(default_factory=list[int])
    fed: int = 0
    unchecked: int = 0
    """Number of ids to continue from that are not yet checked against their logits: the last of
    `ids`."""
    reading: bool = False
    """Whether no token has been drawn since the row was admitted."""
    siblings: list[Row] = field(default_factory=list["Row"])
    """Rows of the same request that start once this row's prompt has been read."""
    slot: Any = None
    """Place where the backend keeps this row."""

    _first_token: float = 0.0
    _starts: list[int] = field(default_factory=list[int])
    """Offset in the text at which each token starts; tokens of one character start at the same
    offset."""

    def __post_init__(self) -> None:
        self._stream = TextStream(self.codec, self.request.sampling.stop, self.prompt.ids[-1])

    @property
    def request(self) -> GenerateRequest:
        return self.job.request

    @property
    def left(self) -> int:
        """Tokens to feed before the next one can be drawn."""
        return len(self.ids) - self.fed

    def wanted(self, count: int) -> int:
        """Number of logits needed from the next `count` tokens: one before each unchecked id, and
        one after the very last token. They are the last ones of the feed."""
        return min(count, max(0, self.unchecked + 1 - (self.left - count)))

    def place(self) -> None:
        """Prepare the row for admission: all its tokens must be fed. A row without a token includes
        its siblings and the ids to continue from; a preempted row has the tokens that it had."""
        resumed = () if self.output_ids else self.request.resume_ids
        self.ids = [*self.prompt.ids, *self.output_ids, *resumed]
        self.fed, self.unchecked = 0, len(resumed)
        self.siblings = self.job.rows[1:] if self.index == 0 and not self.output_ids else []

    def take_over(self, logits: Iterable[Any]) -> None:
        """Accept ids that another worker has streamed: one for each of the logits [vocabulary]
        before them. They are not shown again. Raises CannotContinue for an id that this row could
        not have drawn."""
        for here in logits:
            token = self.ids[-self.unchecked]
            sampled = sample_given_token(
                here[None], self.allowed, self.sampling, token, self.output_ids
            )
            if sampled is None or self.finish_reason is not None:
                raise self._cannot_continue_error()
            self.store_likeliest(here[None])
            self.push(sampled)
            self.unchecked -= 1
            self.job.generated += 1

    def _cannot_continue_error(self) -> CannotContinue:
        schema = "" if self.request.json_schema is None else " and this JSON schema"
        tools = " and these tools" if self.matcher is not None and not schema else ""
        return CannotContinue(
            f"request {self.request.id}: the ids to continue from cannot come from this model with "
            f"these sampling parameters{schema}{tools}; ask again from the start"
        )

    @property
    def allowed(self) -> bytes | None:
        """The tokens that its grammar allows next (see `Matcher.allowed`); None if all are
        allowed."""
        return None if self.matcher is None else self.matcher.allowed

    def store_likeliest(self, logits: Any) -> None:
        """Store the most likely next tokens, if requested; logits: [1, vocabulary]."""
        if count := self.request.top_logprobs:
            # Called twice at one position if memory ran out between this and the choice.
            del self.alternatives[len(self.output_ids) :]
            self.alternatives += likeliest(
                logits, [self.allowed], [self.sampling], [self.output_ids], count
            )

    def push(self, sampled: Sampled) -> Delta:
        """Add a token; returns the text that it releases, often none. The end-of-turn token is kept
        in the ids (it was sampled and must be trainable) but adds no text. A row whose grammar is
        complete ends without an end-of-turn token: there was nothing left to sample.

        Raises EngineError if the row's grammar cannot continue after this token.
        """
        if not self.output_ids:
            self._first_token = time.perf_counter() - self.started
        token, logprob, raw_logprob = sampled
        self.output_ids.append(token)
        self.logprobs.append(logprob)
        self.raw_logprobs.append(raw_logprob)
        text = ""
        if token in self.end_ids:
            self.finish_reason = "stop"
        else:
            self._starts.append(len(self._stream.text))
            text = self._stream.push(token)
            if self.matcher is not None:
                self.matcher.consume(token)
            if self._stream.stopped or (self.matcher is not None and self.matcher.complete):
                self.finish_reason = "stop"
            elif len(self.output_ids) >= self.limit:
                self.finish_reason = "length"
        if self.finish_reason is not None:
            text += self._stream.finish()
        adapter, version = self._adapter_version
        return Delta(
            index=self.index, text=text, ids=(token,), adapter=adapter, adapter_version=version
        )

    def end(self, reason: FinishReason) -> Delta:
        """End the row here, because the server that samples it has ended it; returns held-back
        text."""
        self.finish_reason = reason
        adapter, version = self._adapter_version
        text = self._stream.finish()
        return Delta(index=self.index, text=text, adapter=adapter, adapter_version=version)

    def take_logprobs(self, raw: list[float]) -> None:
        """Set the log-probabilities of the output under the model's own distribution."""
        if self.matcher is None and not self.sampling.shapes:
            self.logprobs = raw
        self.raw_logprobs = raw
        self.rescored = True

    def completion(self) -> Completion:
        """Build the completion of the finished row."""
        assert self.finish_reason is not None
        text, opened = self._stream.text, self._begins_in_thought
        calls = calls_of(self.request, self.index, text, opened=opened)
        reason = "tool_calls" if calls and self.finish_reason == "stop" else self.finish_reason
        first = self.index == 0
        adapter, version = self._adapter_version
        return Completion(
            index=self.index,
            text=text,
            tool_calls=calls,
            begins_in_thought=opened,
            prompt_ids=tuple(self.prompt.ids),
            output_ids=tuple(self.output_ids),
            logprobs=tuple(self.logprobs),
            raw_logprobs=tuple(self.raw_logprobs),
            tokens=self._token_texts(),
            top_logprobs=self._top_logprobs(),
            finish_reason=reason,
            grammar_masked=self.matcher is not None,
            usage=Usage(
                prompt=len(self.prompt.ids) if first else 0,
                cached=self.cached if first else 0,
                completion=len(self.output_ids),
                reasoning=self._reasoning_tokens(),
                source="engine",
            ),
            first_token_seconds=self._first_token,
            decode_seconds=max(0.0, time.perf_counter() - self.started - self._first_token),
            extends_previous=self.prompt.extends_previous,
            adapter=adapter,
            adapter_version=version,
        )

    @property
    def _begins_in_thought(self) -> bool:
        # A schema or a required call leaves no room for a thought, even if the template opened one.
        free = self.request.json_schema is None and not self.request.must_call
        return self.prompt.opens_thought and free

    def _token_texts(self) -> tuple[str, ...]:
        if not self.request.token_texts:
            return ()
        return token_texts(self.codec, self.output_ids, self.prompt.ids[-1], self.end_ids)

    def _top_logprobs(self) -> tuple[tuple[tuple[str, float], ...], ...]:
        before = [self.prompt.ids[-1], *self.output_ids]
        return tuple(
            tuple(
                (token_texts(self.codec, [token], after, self.end_ids)[0], logprob)
                for token, logprob in pairs
            )
            for after, pairs in zip(before, self.alternatives, strict=False)
        )

    def _reasoning_tokens(self) -> int:
        """Number of output tokens that start inside a thought, delimiters included."""
        spans = iter(split_thoughts(self._stream.text, opened=self._begins_in_thought).spans)
        count, (start, end) = 0, next(spans, (-1, -1))
        for begin in self._starts:
            while 0 <= end <= begin:
                start, end = next(spans, (-1, -1))
            count += start <= begin < end
        return count

    @property
    def _adapter_version(self) -> tuple[str | None, int]:
        """Name and version of the row's adapter."""
        adapter = self.job.adapter
        return (None, 0) if adapter is None else (adapter.name, adapter.version)
