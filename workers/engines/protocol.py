"""The contract between the gpu worker and the engines that generate tokens."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from pydantic import Field

from loopline.agents.records import (
    ANY_JSON_OBJECT,
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
    """What an engine can do, declared rather than guessed."""

    token_ids: bool
    """Prompt and output ids are returned, so calls are trainable."""
    logprobs: bool
    streaming: bool
    tools: bool
    """Understands `tools`, natively or by parsing its model's tool-call markup."""
    tool_choice: bool
    """Can force a tool call or a call of one given tool (`required`), and can limit an answer to
    one call. Every engine supports `none`."""
    penalties: bool
    """Samples with `frequency_penalty` and `presence_penalty`."""
    top_logprobs: bool
    """Can report the most likely tokens at each position."""
    json_schema: bool
    """Can hold an answer to a JSON schema."""
    seeds: bool
    """The same seed, prompt and weights produce the same tokens."""
    score: bool
    adapters: bool
    continuation: bool
    """Can resume from `resume_ids`: a stream that another worker started has no gap and no
    repeat."""
    max_context: int | None
    json_mode: bool = False
    """Can hold an answer to any JSON object, even without `json_schema`."""
    reasoning_effort: bool = False
    """Passes on how much the model shall think, and how long its answers shall be (`verbosity`)."""
    template_options: bool = False
    """Accepts chat template switches per request."""
    announces_calls: bool = False
    """Announces each call that may be billed, with `Sending`, before sending it."""


class GenerateRequest(Record):
    """One prompt, `sampling.n` completions."""

    id: str
    messages: tuple[Message, ...] = Field(min_length=1)
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    """A model in this process that must call a tool starts its answer with the call."""
    parallel_tool_calls: bool = True
    """Whether a completion may make more than one call."""
    token_texts: bool = False
    """Whether to return the text of each output token as well."""
    template_options: TemplateOptions = Field(default_factory=dict)
    """Switches of the model's chat template; they override those of its pool."""
    top_logprobs: int = Field(default=0, ge=0, le=20)
    """How many of the most likely tokens to return at each position as well."""
    sampling: SamplingParams = Field(default_factory=SamplingParams)
    previous_ids: tuple[int, ...] = ()
    """Prompt and output ids of the previous call in this conversation. If the rendered prompt
    extends their text, only the rest is tokenized; otherwise, and for ids of another model, a new
    sample starts."""
    resume_ids: tuple[int, ...] = ()
    """Output ids that another worker has already streamed for this request (n = 1)."""
    resume_version: int = 0
    """Version of the adapter that drew `resume_ids`; 0 without an adapter. An engine that now
    serves another version raises `CannotContinue`: log-probabilities of these ids would come from
    weights that never drew them."""
    json_schema: JsonObject | None = None
    adapter: str | None = None
    adapter_version: int | None = None
    """The only version of the adapter that may answer; 0 is the model without the adapter. None
    accepts the version that serves when the engine starts the request."""
    idempotency_key: str = ""
    """The same for every worker that takes this request over, and when its step is retried: an
    endpoint that supports such keys answers, and bills, only once."""
    deadline: float | None = None
    """Unix time in seconds by this machine's clock, read when the request is submitted. At that
    time the engine stops with `EngineDeadline`."""
    stream: bool = False
    traceparent: str = ""
    """W3C trace context that is sent to an endpoint, as the parent of the endpoint's own spans."""

    @property
    def callable_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that may be called; empty if the choice is `none`."""
        return () if self.tool_choice.mode == "none" else self.tools

    @property
    def must_call(self) -> bool:
        return self.tool_choice.mode == "required"

    @property
    def single_call(self) -> bool:
        """Whether at most one call is allowed; a tool that is required by name is called once."""
        return not self.parallel_tool_calls or self.tool_choice.name is not None


class Delta(Record):
    """New text of one completion. Always valid UTF-8: bytes of an incomplete character are held
    back."""

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
    """The full text, thoughts included: each reader separates them (`loopline.agents.thinking`)."""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    """Thoughts that an endpoint returned in a separate field."""
    begins_in_thought: bool = False
    """The prompt ended inside a thought that the chat template had opened."""
    prompt_ids: tuple[int, ...] = ()
    output_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    raw_logprobs: tuple[float, ...] = ()
    tokens: tuple[str, ...] = ()
    """Text of each output token, if requested. Joined, these are the text, up to the token in which
    a stop string ended it. A token whose bytes are not complete characters is U+FFFD; a token that
    ends the turn adds no text. Empty if an endpoint returns none."""
    reported_logprobs: tuple[float, ...] = ()
    """Log-probability of each of `tokens` under an unknown distribution: see `Call`."""
    top_logprobs: tuple[tuple[tuple[str, float], ...], ...] = ()
    """Most likely tokens at the position of each output token, if requested, most likely first:
    text (as in `tokens`) and log-probability under the distribution that `logprobs` refer to. Fewer
    where fewer are possible. An endpoint's are passed on as received, or empty."""
    finish_reason: FinishReason
    grammar_masked: bool = False
    usage: Usage
    """Token counts. With n > 1 the prompt is counted on index 0 only, so that the sum is the amount
    paid for."""
    first_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    extends_previous: bool = False
    adapter: str | None = None
    adapter_version: int = 0
    sending: int = 0
    """Number of the call that returned this completion; 0 if no call is sent anywhere."""


class Sending(Record):
    """A call that may be billed is about to be sent. It is sent only when the reader asks for the
    next event, so that the reader can record this one first."""

    number: int
    """Number of the call within the request, from 1: completions and useless answers refer to
    it."""
    prompt: int
    """Upper bound of the prompt tokens."""
    completion: int
    """Upper bound of the generated tokens, over all candidates."""
    has_limit: bool = True
    """False if the caller wants no limit: then a budget must not allow the call."""


class Discarded(Record):
    """An answer that was paid for but can't be used; another attempt or an error follows it."""

    usage: Usage | None
    """Usage; None if the call may have been billed, but its usage is unknown."""
    why: str = ""
    """Reason why the usage is unknown."""
    sending: int = 0


class NotBilled(Record):
    """A call was sent but is not billed: the endpoint refused it or never received it."""

    sending: int


AnswerEvent = Delta | Completion
EngineEvent = AnswerEvent | Sending | Discarded | NotBilled


class Engine(Protocol):
    """Loads weights (or a connection) in `start`, serves many requests at once."""

    @property
    def name(self) -> str: ...

    @property
    def base(self) -> str:
        """The model's name as it is written into each Call; never a path of a machine."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def submit(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        """Yields deltas (if `stream`) and then `sampling.n` completions. In between it yields the
        calls that are about to be sent to an endpoint that may bill them, and answers that were
        paid for but not used.

        Raises a subclass of `EngineError`. Closing the iterator cancels the request.
        """
        ...

    async def cancel(self, request_id: str) -> None: ...

    async def score(self, ids: Sequence[int], adapter: str | None = None) -> list[float]:
        """Natural log-probability of each of `ids[1:]`, given the ids before it."""
        ...

    async def load_adapter(self, name: str, path: str, version: int) -> None:
        """Serve new requests for this adapter with the weights at `path`: a LoRA, or a whole model
        that replaces the engine's own, if the engine supports that. Running requests finish with
        the weights that they started with.

        Raises `EngineError` for weights that this engine cannot use; then it keeps serving the
        previous version.
        """
        ...

    async def unload_adapter(self, name: str) -> None:
        """Stop serving this adapter to new requests. Raises `EngineError` `unknown_adapter`."""
        ...

    def totals(self) -> EngineTotals:
        """Totals of what the engine has generated since it started, counted independently of any
        ledger."""
        ...


@dataclass(frozen=True)
class EngineTotals:
    """The engine's own count, for checking the ledger."""

    calls: int
    """Requests answered to the end, regardless of the number of completions."""
    prompt_tokens: int
    completion_tokens: int
    abandoned_tokens: int = 0
    """Tokens generated for requests that were cancelled, closed or timed out. These tokens were
    never delivered, so no ledger has them; an engine of an endpoint cannot know them."""


@dataclass(frozen=True)
class Occupancy:
    """How full an engine in this process currently is."""

    rows: int
    """Completions that the next pass works on: the size of the batch."""
    waiting: int
    """Requests that are not admitted yet, and rows that were preempted."""
    kv_tokens: int
    """Tokens of those rows whose keys and values are in memory."""
    kv_capacity: int | None
    """Tokens that the cache has room for; None if only memory limits it."""


@runtime_checkable
class InProcessEngine(Protocol):
    """An engine that runs the model itself. An endpoint's engine can't know how full it is."""

    def occupancy(self) -> Occupancy:
        """Fast, and safe to call from any thread."""
        ...


ErrorKind = Literal[
    "bad_request", "context_overflow", "content_filter", "auth", "rate_limited", "unavailable",
    "timeout", "garbage", "deadline", "cancelled", "unknown_adapter", "internal",
]  # fmt: skip


class EngineError(Exception):
    """Base of every engine's errors: what went wrong, and whether a retry may help."""

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
    """The engine can't continue from these `resume_ids`; the request is valid without them."""

    kind = "bad_request"


class EngineDeadline(EngineError):
    """The request's deadline passed while it was queued or generating."""

    kind = "deadline"


class EngineBroken(EngineError):
    """The engine can't serve anyone in this process any more: only a restarted process has a
    working engine."""

    kind = "unavailable"
    retryable = True


# Refusals that all engines share: a request for something that an engine can't do is an error,
# never ignored.


def refuse_unsupported(request: GenerateRequest, capabilities: Capabilities, engine: str) -> None:
    """Raise for any part of `request` that an engine with these capabilities can't honour.

    Raises EngineError of kind `unknown_adapter` or `bad_request`, and EngineDeadline if no time is
    left.
    """
    if request.deadline is not None and request.deadline <= time.time():
        raise EngineDeadline(f"request {request.id}: its deadline had passed before it started")
    if request.adapter is not None and not capabilities.adapters:
        raise EngineError(
            f"request {request.id} names the adapter {request.adapter!r}, but the {engine} engine "
            "serves no adapters",
            kind="unknown_adapter",
        )
    formats = capabilities.json_schema or (
        capabilities.json_mode and request.json_schema == ANY_JSON_OBJECT
    )
    if request.json_schema is not None and not formats:
        raise EngineError(
            f"request {request.id} has a JSON schema, which the {engine} engine cannot enforce; "
            "leave the schema out or use a pool that can",
            kind="bad_request",
        )
    if request.tools and not capabilities.tools:
        raise EngineError(
            f"request {request.id} offers tools, which the {engine} engine does not support",
            kind="bad_request",
        )
    _refuse_tool_choice(request, capabilities, engine)
    sampling = request.sampling
    if sampling.penalizes and not capabilities.penalties:
        raise EngineError(
            f"request {request.id} has frequency_penalty = {sampling.frequency_penalty:g} and "
            f"presence_penalty = {sampling.presence_penalty:g}, which the {engine} engine does not "
            "support; leave them at 0 or use a pool that does",
            kind="bad_request",
        )
    if not capabilities.reasoning_effort:
        _refuse_effort(request, engine)
    if request.top_logprobs and not capabilities.top_logprobs:
        raise EngineError(
            f"request {request.id} has top_logprobs = {request.top_logprobs}, but the {engine} "
            "engine reports only the tokens that it samples; leave it at 0 or use a pool that "
            "reports others",
            kind="bad_request",
        )
    if request.template_options and not capabilities.template_options:
        raise EngineError(
            f"request {request.id} has template_options "
            f"{', '.join(request.template_options)}, but the {engine} engine has no chat template "
            "to pass them to; leave them out",
            kind="bad_request",
        )
    if request.resume_ids and not capabilities.continuation:
        raise CannotContinue(
            f"request {request.id} is to be continued from ids, which the {engine} engine cannot "
            "do; ask again from the start"
        )
    if request.resume_ids and request.sampling.n != 1:
        raise CannotContinue(
            f"request {request.id}: only a single completion can be continued, not "
            f"n = {request.sampling.n}; ask again from the start"
        )


def _refuse_effort(request: GenerateRequest, engine: str) -> None:
    sampling = request.sampling
    if sampling.reasoning_effort is not None:
        raise EngineError(
            f"request {request.id} has reasoning_effort = {sampling.reasoning_effort!r}, which the "
            f"{engine} engine does not support; leave it out, or set the switches of the model's "
            "chat template (template_options)",
            kind="bad_request",
        )
    if sampling.verbosity is not None:
        raise EngineError(
            f"request {request.id} has verbosity = {sampling.verbosity!r}, which the {engine} "
            "engine does not support; leave it out",
            kind="bad_request",
        )


def _refuse_tool_choice(request: GenerateRequest, capabilities: Capabilities, engine: str) -> None:
    choice, names = request.tool_choice, [tool.name for tool in request.tools]
    wanted = "a call of a tool" if choice.name is None else f"a call of the tool {choice.name!r}"
    if choice.name is not None and not request.must_call:
        raise EngineError(
            f"request {request.id}: tool_choice names the tool {choice.name!r} but has the mode "
            f"{choice.mode!r}; a tool can be named only with 'required'",
            kind="bad_request",
        )
    if request.must_call and not names:
        raise EngineError(
            f"request {request.id} requires {wanted} but offers no tools; send the tools, or "
            "leave tool_choice out",
            kind="bad_request",
        )
    if choice.name is not None and choice.name not in names:
        raise EngineError(
            f"request {request.id} requires {wanted}, but offers only other tools: "
            f"{', '.join(names)}",
            kind="bad_request",
        )
    if capabilities.tool_choice or not request.callable_tools:
        return
    if request.must_call or request.single_call:
        demand = f"requires {wanted}" if request.must_call else "allows a single tool call"
        raise EngineError(
            f"request {request.id} {demand}, which this pool's {engine} engine cannot enforce; "
            "leave tool_choice at 'auto' and parallel_tool_calls at true, or use a pool "
            "that can (a model in this process: constrain_tools = true)",
            kind="bad_request",
        )


def refuse_call_under_schema(request: GenerateRequest) -> None:
    """Raise EngineError `bad_request` if the request also requires a call: for an engine whose
    schema constrains the whole completion, which leaves no room for a call."""
    if request.must_call and request.json_schema is not None:
        raise EngineError(
            f"request {request.id} requires both a tool call and a JSON schema, but this engine "
            "constrains the whole completion to the schema; leave out one of the two",
            kind="bad_request",
        )


def refuse_other_version(request: GenerateRequest, version: int) -> None:
    """Raise EngineError `unknown_adapter` if the request is for another version of the adapter than
    this one, and CannotContinue if another version drew its ids."""
    if request.adapter_version not in (None, version):
        raise EngineError(
            f"request {request.id} is for version {request.adapter_version} of its adapter, but "
            f"version {version} is served now",
            kind="unknown_adapter",
        )
    if request.resume_ids and request.resume_version != version:
        raise CannotContinue(
            f"request {request.id}: the ids to continue from were drawn by version "
            f"{request.resume_version} of its adapter, but version {version} is served now; ask "
            "again from the start"
        )


def context_overflow(request_id: str, prompt_tokens: int, max_context: int) -> EngineError:
    """The error for a prompt that leaves no room for even one new token."""
    return EngineError(
        f"request {request_id}: the prompt has {prompt_tokens} tokens, but the model's context "
        f"holds {max_context}; shorten the prompt or use a model with a longer context",
        kind="context_overflow",
    )
