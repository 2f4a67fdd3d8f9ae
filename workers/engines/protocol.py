"""The contract between the gpu worker and whatever generates tokens."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from pydantic import Field

from loopline.agents.records import (
    FinishReason,
    JsonObject,
    Message,
    Record,
    SamplingParams,
    ToolCall,
    ToolChoice,
    ToolSpec,
    Usage,
)
from loopline.agents.template_options import TemplateOptions


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do, declared and never guessed."""

    token_ids: bool
    """Prompt and output ids are returned, so calls are trainable."""
    logprobs: bool
    streaming: bool
    tools: bool
    """Understands `tools`, natively or by parsing its model's tool-call markup."""
    tool_choice: bool
    """Can be held to call a tool, or a certain one (`required`), and to call no more than one. To
    call none is within the power of every engine."""
    penalties: bool
    """Samples with `frequency_penalty` and `presence_penalty`."""
    top_logprobs: bool
    """Can tell the likeliest tokens of each place."""
    json_schema: bool
    seeds: bool
    """The same seed, prompt and weights give the same tokens."""
    score: bool
    adapters: bool
    continuation: bool
    """Can go on from `resume_ids`: a stream begun by another worker has no gap and no repeat."""
    max_context: int | None
    template_options: bool = False
    """Tells a chat template switches of a single request."""
    announces_calls: bool = False
    """Tells of each call that somebody may bill, by `Sending`, before it is sent."""


class GenerateRequest(Record):
    """One prompt, `sampling.n` completions."""

    id: str
    messages: tuple[Message, ...] = Field(min_length=1)
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    """A model in this process that must call a tool begins with the call."""
    parallel_tool_calls: bool = True
    """Whether a completion may make more than one call."""
    token_texts: bool = False
    """The text of each output token is wanted, too."""
    template_options: TemplateOptions = Field(default_factory=dict)
    """Switches of the model's chat template, over those of its pool."""
    top_logprobs: int = Field(default=0, ge=0, le=20)
    """Number of the likeliest tokens to return at each place, in addition."""
    sampling: SamplingParams = Field(default_factory=SamplingParams)
    previous_ids: tuple[int, ...] = ()
    """Prompt and output ids of the earlier call of this conversation. If the rendered prompt
    extends their text, only the rest is tokenized; else, and for ids of another model, a new
    sample starts."""
    resume_ids: tuple[int, ...] = ()
    """Output ids that another worker has already streamed for this very request (n = 1)."""
    resume_version: int = 0
    """Version of the adapter that drew them; 0 without one. An engine that has another one by now
    raises `CannotContinue`: their log-probabilities would be those of weights that never drew
    them."""
    json_schema: JsonObject | None = None
    adapter: str | None = None
    adapter_version: int | None = None
    """The one version of the adapter that may answer, 0 for the model without it; None for
    whichever serves when the engine begins."""
    idempotency_key: str = ""
    """The same from whichever worker takes this request over, and when its step is taken again: an
    endpoint that knows such keys answers, and bills, once."""
    deadline: float | None = None
    """Unix seconds by the clock of this machine, as it stands when the engine is asked. An engine
    stops there with `EngineDeadline`."""
    stream: bool = False
    traceparent: str = ""
    """W3C trace context that is sent to an endpoint: it is the parent of the endpoint's own
    spans."""

    @property
    def callable_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that may be called: none where the choice is `none`."""
        return () if self.tool_choice.mode == "none" else self.tools

    @property
    def must_call(self) -> bool:
        return self.tool_choice.mode == "required"

    @property
    def single_call(self) -> bool:
        """Whether at most one call may come; a tool that is named is called once."""
        return not self.parallel_tool_calls or self.tool_choice.name is not None


class Delta(Record):
    """New text of one completion. Always valid UTF-8: bytes of a cut character are held back."""

    index: int = 0
    text: str
    ids: tuple[int, ...] = ()
    adapter: str | None = None
    adapter_version: int = 0
    """Version of the adapter that drew the ids, as in the completion."""


class Completion(Record):
    """One finished completion of a request; the last events of a stream, one per index."""

    index: int = 0
    text: str
    """Whole: its thoughts are separated from the rest by anyone who reads it
    (`loopline.agents.thinking`)."""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    """Thoughts that an endpoint gave in a field of their own."""
    begins_in_thought: bool = False
    """The prompt ended within a thought that the chat template had opened."""
    prompt_ids: tuple[int, ...] = ()
    output_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    raw_logprobs: tuple[float, ...] = ()
    tokens: tuple[str, ...] = ()
    """Text of each output token, where the request asked for it: joined, the text, up to the token
    in which a stop string ended it. A token whose bytes are not characters by themselves is U+FFFD;
    one that ends the turn is not text. Empty where an endpoint gives none."""
    top_logprobs: tuple[tuple[tuple[str, float], ...], ...] = ()
    """Likeliest tokens in the place of each output token, where the request asked for them, under
    the distribution that `logprobs` are of, the likeliest first: text (as in `tokens`) and
    log-probability. Fewer where fewer are possible. Those of an endpoint are as it gives them, or
    empty."""
    finish_reason: FinishReason
    grammar_masked: bool = False
    usage: Usage
    """Token counts. With n > 1 the prompt is counted on index 0 only, so that the sum is what was
    paid."""
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    extends_previous: bool = False
    adapter: str | None = None
    adapter_version: int = 0
    sending: int = 0
    """Number of the call that it came of; 0 where none is sent anywhere."""


class Sending(Record):
    """A call that may be paid for is about to be sent: it leaves when the next event is asked for,
    so that anyone who reads the events can record it first."""

    number: int
    """Number of the call within the request, from 1: completions and useless answers name their
    call by it."""
    prompt: int
    """Prompt tokens, at most."""
    completion: int
    """Tokens at most, all candidates together."""


class Discarded(Record):
    """An answer that was paid for and can't be used; another attempt or an error follows it."""

    usage: Usage | None
    """Usage; None if the call may have been paid for and nobody knows."""
    why: str = ""
    """Reason why the usage is unknown."""
    sending: int = 0


class NotBilled(Record):
    """A call was sent, and nothing has to be paid for it: the endpoint refused, or never got it."""

    sending: int


AnswerEvent = Delta | Completion
EngineEvent = AnswerEvent | Sending | Discarded | NotBilled


class Engine(Protocol):
    """Loads weights (or a connection) in `start`, serves many requests at once."""

    @property
    def name(self) -> str: ...

    @property
    def base(self) -> str:
        """The model's name as it is written into each Call: never a machine's path."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def submit(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        """Yields deltas (if `stream`) and then `sampling.n` completions; between them what is about
        to be sent to an endpoint that may bill it, and answers that were paid for but not used.

        Raises a subclass of `EngineError`. Closing the iterator cancels the request.
        """
        ...

    async def cancel(self, request_id: str) -> None: ...

    async def score(self, ids: Sequence[int], adapter: str | None = None) -> list[float]:
        """Natural log-probability of each of `ids[1:]` given what stands before it."""
        ...

    async def load_adapter(self, name: str, path: str, version: int) -> None:
        """Answer new requests of this adapter with what is at `path`: a LoRA, or a whole model in
        the place of the engine's own, if the engine can. Running ones end with the weights that
        they began with.

        Raises `EngineError` for weights that cannot be used here; then the version before goes on
        serving.
        """
        ...

    async def unload_adapter(self, name: str) -> None:
        """Let no new request have it. Raises `EngineError` `unknown_adapter`."""
        ...

    def totals(self) -> EngineTotals:
        """What the engine has generated since it started, counted apart from any ledger."""
        ...


@dataclass(frozen=True)
class EngineTotals:
    """The engine's own count, which the ledger is held against."""

    calls: int
    """Requests answered to the end, however many completions each had."""
    prompt_tokens: int
    completion_tokens: int
    abandoned_tokens: int = 0
    """Tokens generated for requests that were cancelled, closed or out of time. They were never
    delivered, so they stand in no ledger; an endpoint's engine cannot know them."""


@dataclass(frozen=True)
class Occupancy:
    """How full an engine in this process is at this moment."""

    rows: int
    """Completions that the next pass works on: the size of the batch."""
    waiting: int
    """Requests that are not admitted yet, and rows that were set back."""
    kv_tokens: int
    """Tokens of those rows whose keys and values are in memory."""
    kv_capacity: int | None
    """Tokens that the cache has room for; None where only the memory bounds it."""


@runtime_checkable
class InProcessEngine(Protocol):
    """An engine that makes the passes itself. That of an endpoint can't know how full it is."""

    def occupancy(self) -> Occupancy:
        """Quick, and safe from any thread."""
        ...


ErrorKind = Literal[
    "bad_request", "context_overflow", "content_filter", "auth", "rate_limited", "unavailable",
    "timeout", "garbage", "deadline", "cancelled", "unknown_adapter", "internal",
]  # fmt: skip


class EngineError(Exception):
    """Base of every engine's errors: what went wrong, and whether asking again may help."""

    kind: ErrorKind = "internal"
    retryable: bool = False

    def __init__(
        self, message: str, *, kind: ErrorKind | None = None, retryable: bool | None = None
    ) -> None:
        super().__init__(message)
        if kind is not None:
            self.kind = kind
        if retryable is not None:
            self.retryable = retryable


class CannotContinue(EngineError):
    """The engine can't go on from these `resume_ids`; without them, the request is a good one."""

    kind = "bad_request"


class EngineDeadline(EngineError):
    """The request's deadline passed while it was queued or generating."""

    kind = "deadline"


class EngineBroken(EngineError):
    """The engine can't continue in this process for any caller: only a process that is started
    again has one that works."""

    kind = "unavailable"
    retryable = True


# The refusals that every engine shares: what it can't do is an error, never ignored.


def refuse_unsupported(request: GenerateRequest, capabilities: Capabilities, engine: str) -> None:
    """Raise for whatever `request` asks that an engine with these capabilities can't honour.

    Raises EngineError of kind `unknown_adapter` or `bad_request`, and EngineDeadline when there
    is no time left at all.
    """
    if request.deadline is not None and request.deadline <= time.time():
        raise EngineDeadline(f"request {request.id}: its deadline had passed before it started")
    if request.adapter is not None and not capabilities.adapters:
        raise EngineError(
            f"request {request.id} names the adapter {request.adapter!r}, but the {engine} engine "
            "serves no adapters",
            kind="unknown_adapter",
        )
    if request.json_schema is not None and not capabilities.json_schema:
        raise EngineError(
            f"request {request.id} brings a JSON schema, which the {engine} engine cannot enforce; "
            "leave the schema out or use a pool that can",
            kind="bad_request",
        )
    if request.tools and not capabilities.tools:
        raise EngineError(
            f"request {request.id} offers tools, which the {engine} engine does not understand",
            kind="bad_request",
        )
    _refuse_tool_choice(request, capabilities, engine)
    sampling = request.sampling
    if sampling.penalizes and not capabilities.penalties:
        raise EngineError(
            f"request {request.id} has frequency_penalty = {sampling.frequency_penalty:g} and "
            f"presence_penalty = {sampling.presence_penalty:g}, which the {engine} engine cannot "
            "sample with; leave them at 0 or use a pool that can",
            kind="bad_request",
        )
    if request.top_logprobs and not capabilities.top_logprobs:
        raise EngineError(
            f"request {request.id} has top_logprobs = {request.top_logprobs}, and the {engine} "
            "engine knows no other tokens than those it gives; leave it at 0 or use a pool that "
            "does",
            kind="bad_request",
        )
    if request.template_options and not capabilities.template_options:
        raise EngineError(
            f"request {request.id} has template_options "
            f"{', '.join(request.template_options)}, and the {engine} engine has no chat template "
            "that it could tell; leave them out",
            kind="bad_request",
        )
    if request.resume_ids and not capabilities.continuation:
        raise CannotContinue(
            f"request {request.id} is to be continued from ids, which the {engine} engine cannot; "
            "ask again from the start"
        )
    if request.resume_ids and request.sampling.n != 1:
        raise CannotContinue(
            f"request {request.id}: only a single completion can be continued, not "
            f"n = {request.sampling.n}; ask again from the start"
        )


def _refuse_tool_choice(request: GenerateRequest, capabilities: Capabilities, engine: str) -> None:
    choice, names = request.tool_choice, [tool.name for tool in request.tools]
    wanted = "a call of a tool" if choice.name is None else f"a call of the tool {choice.name!r}"
    if choice.name is not None and not request.must_call:
        raise EngineError(
            f"request {request.id}: tool_choice names the tool {choice.name!r} and has the mode "
            f"{choice.mode!r}; only with 'required' can a tool be named",
            kind="bad_request",
        )
    if request.must_call and not names:
        raise EngineError(
            f"request {request.id} requires {wanted} and offers none; send the tools with it, or "
            "leave tool_choice out",
            kind="bad_request",
        )
    if choice.name is not None and choice.name not in names:
        raise EngineError(
            f"request {request.id} requires {wanted}, which is not among those that it offers: "
            f"{', '.join(names)}",
            kind="bad_request",
        )
    if capabilities.tool_choice or not request.callable_tools:
        return
    if request.must_call or request.single_call:
        demand = f"requires {wanted}" if request.must_call else "allows a single tool call"
        raise EngineError(
            f"request {request.id} {demand}, to which this pool's {engine} engine cannot hold its "
            "model; leave tool_choice at 'auto' and parallel_tool_calls at true, or use a pool "
            "that can (a model in this process: constrain_tools = true)",
            kind="bad_request",
        )


def refuse_call_under_schema(request: GenerateRequest) -> None:
    """Raise EngineError `bad_request`: for an engine whose schema holds the whole completion, which
    leaves no room for a call."""
    if request.must_call and request.json_schema is not None:
        raise EngineError(
            f"request {request.id} requires a tool call and a text by a JSON schema: this engine "
            "holds the whole completion to the schema; leave out one of the two",
            kind="bad_request",
        )


def refuse_other_version(request: GenerateRequest, version: int) -> None:
    """Raise EngineError `unknown_adapter` for a request that another version than this one of the
    adapter has to answer, and CannotContinue for ids that another one drew."""
    if request.adapter_version not in (None, version):
        raise EngineError(
            f"request {request.id} is for version {request.adapter_version} of its adapter, and "
            f"version {version} serves now",
            kind="unknown_adapter",
        )
    if request.resume_ids and request.resume_version != version:
        raise CannotContinue(
            f"request {request.id}: the ids to continue from were drawn by version "
            f"{request.resume_version} of its adapter, and version {version} serves now; ask again "
            "from the start"
        )


def context_overflow(request_id: str, prompt_tokens: int, max_context: int) -> EngineError:
    """The error for a prompt that leaves no room for even one new token."""
    return EngineError(
        f"request {request_id}: the prompt has {prompt_tokens} tokens, but the model's context "
        f"holds {max_context}; shorten the prompt or use a model with a longer context",
        kind="context_overflow",
    )
