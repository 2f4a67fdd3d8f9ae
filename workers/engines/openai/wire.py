"""What goes to an OpenAI-compatible endpoint and what may come back.

Answers are parsed strictly where we rely on them and loosely elsewhere: unknown fields pass, a
wrong type in a known one is garbage.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from agents.records import (
    FinishReason,
    JsonObject,
    Message,
    SamplingParams,
    ToolCall,
    Usage,
)
from agents.tools.json_arguments import parse_arguments
from workers.engines.protocol import EngineError, GenerateRequest
from workers.engines.settings import ModelSettings
from workers.engines.text.chat_prompt import template_tools
from workers.engines.text.tool_markup import tool_call_id, without_tool_calls


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class WireFunction(_Wire):
    name: str | None = None
    arguments: str | None = None


class WireToolCall(_Wire):
    """A call, or in a stream a piece of the call at `index`."""

    index: int | None = None
    id: str | None = None
    function: WireFunction = WireFunction()


class WireMessage(_Wire):
    """A message, or in a stream a piece of it."""

    content: str | None = None
    refusal: str | None = None
    tool_calls: list[WireToolCall] | None = None


class WireLogprob(_Wire):
    logprob: float = Field(allow_inf_nan=False)
    """Python's servers write NaN and Infinity as well, which no record can carry as JSON."""


class WireLogprobs(_Wire):
    content: list[WireLogprob] | None = None


class WireChoice(_Wire):
    index: int
    message: WireMessage = WireMessage()
    delta: WireMessage = WireMessage()
    finish_reason: str | None = None
    logprobs: WireLogprobs | None = None
    token_ids: list[int] | None = None


class WirePromptDetails(_Wire):
    cached_tokens: int | None = None


class WireCompletionDetails(_Wire):
    reasoning_tokens: int | None = None


MAX_TOKENS = 2**40
"""No call has more: an endpoint that says so talks nonsense, and sums stay in 64 bits."""


class WireUsage(_Wire):
    prompt_tokens: int = Field(ge=0, le=MAX_TOKENS)
    completion_tokens: int = Field(ge=0, le=MAX_TOKENS)
    prompt_tokens_details: WirePromptDetails | None = None
    completion_tokens_details: WireCompletionDetails | None = None


class WireResponse(_Wire):
    """A whole response, or one chunk of a stream."""

    choices: list[WireChoice]
    usage: WireUsage | None = None
    prompt_token_ids: list[int] | None = None


def request_body(request: GenerateRequest, settings: ModelSettings) -> dict[str, Any]:
    """Keyword arguments of `chat.completions.create`.

    Raises EngineError of kind `bad_request` for what this endpoint was not configured to
    understand, or a conversation that no endpoint would take.
    """
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": settings.model,
        "messages": [_message(message) for message in request.messages],
        "temperature": sampling.temperature,
        _limit_field(settings): sampling.max_tokens,
    }
    extra: dict[str, Any] = {}
    if request.tools:
        body["tools"] = template_tools(request.tools)
    if sampling.top_p != 1.0:
        body["top_p"] = sampling.top_p
    if sampling.top_k:
        if not settings.top_k:
            raise EngineError(
                f"request {request.id} asks for top_k = {sampling.top_k}, which the endpoint of "
                f"{settings.model!r} is not known to understand; set top_k = true in its "
                "[models] table if it does",
                kind="bad_request",
            )
        extra["top_k"] = sampling.top_k
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.n != 1:
        body["n"] = sampling.n
    if keeps_logprobs(settings, sampling):
        body["logprobs"] = True
    if settings.template_options:
        extra["chat_template_kwargs"] = settings.template_options
    if settings.token_ids:
        extra["return_token_ids"] = True
    if request.json_schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": request.json_schema, "strict": True},
        }
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if extra:
        body["extra_body"] = extra
    return body


def keeps_logprobs(settings: ModelSettings, sampling: SamplingParams) -> bool:
    """Whether the endpoint's logprobs are those of the distribution that was sampled from.

    Raw ones are, where temperature and filters change nothing; greedy decoding reports the
    softmax of the raw logits by convention, in every engine.
    """
    if settings.logprobs == "raw":
        plain = sampling.temperature == 1.0 and sampling.top_p == 1.0 and sampling.top_k == 0
        return plain or sampling.temperature == 0.0
    return settings.logprobs == "processed"


def read_usage(wire: WireUsage, source: str) -> Usage:
    """The provider's count. Raises EngineError of kind `garbage` if it contradicts itself."""
    cached = (wire.prompt_tokens_details or WirePromptDetails()).cached_tokens or 0
    details = wire.completion_tokens_details or WireCompletionDetails()
    reasoning = details.reasoning_tokens or 0
    if not 0 <= cached <= wire.prompt_tokens or not 0 <= reasoning <= wire.completion_tokens:
        raise EngineError(
            f"{source} reports usage that contradicts itself: {cached} of {wire.prompt_tokens} "
            f"prompt tokens cached, {reasoning} of {wire.completion_tokens} completion tokens "
            "reasoning",
            kind="garbage",
        )
    return Usage(
        prompt=wire.prompt_tokens,
        cached=cached,
        completion=wire.completion_tokens,
        reasoning=reasoning,
        source="provider",
    )


def read_tool_calls(calls: Sequence[WireToolCall], id_seed: str) -> tuple[ToolCall, ...]:
    """Calls with parsed arguments; unparsable ones keep their text and say what is wrong."""
    result: list[ToolCall] = []
    for position, call in enumerate(calls):
        raw = call.function.arguments or ""
        arguments, error = parse_arguments(raw)
        name = call.function.name or ""
        if not name:
            arguments, error = None, "the call has no name"
        result.append(
            ToolCall(
                id=call.id or tool_call_id(id_seed, position),
                name=name,
                arguments=arguments,
                raw_arguments=raw,
                error=error,
            )
        )
    return tuple(result)


def read_finish(reason: str | None, has_calls: bool, source: str) -> FinishReason:
    """The finish reason; raises EngineError of kind `garbage` for one that nobody defined."""
    if has_calls and reason in ("stop", "function_call", "tool_calls"):
        return "tool_calls"
    match reason:
        case "stop" | "length" | "content_filter":
            return reason
        case "tool_calls" | "function_call":
            return "stop"
        case _:
            raise EngineError(
                f"{source} ended a completion with the unknown reason {reason!r}", kind="garbage"
            )


def _limit_field(settings: ModelSettings) -> str:
    if settings.max_tokens_field != "auto":
        return settings.max_tokens_field
    return "max_completion_tokens" if settings.base_url is None else "max_tokens"


def _message(message: Message) -> dict[str, Any]:
    match message.role:
        case "assistant":
            content = message.content or message.raw_text or ""
            if message.tool_calls:
                # A local model's text holds its calls as markup; here they have a field.
                content = without_tool_calls(content)
            entry: dict[str, Any] = {"role": "assistant", "content": content or None}
            if message.tool_calls:
                entry["tool_calls"] = [_call(call) for call in message.tool_calls]
            elif not content:
                entry["content"] = ""
            return entry
        case "tool":
            if message.tool_call_id is None:
                raise EngineError(
                    "a tool message has no tool_call_id; endpoints need it to find the call that "
                    "it answers",
                    kind="bad_request",
                )
            return {
                "role": "tool",
                "tool_call_id": message.tool_call_id,
                "content": message.content,
            }
        case role:
            return {"role": role, "content": message.content}


def _call(call: ToolCall) -> dict[str, Any]:
    # Servers parse the history's arguments again; a broken call of an earlier turn must not make
    # every later request of the conversation fail, so it goes back wrapped in an object.
    arguments: JsonObject = (
        {"malformed": call.raw_arguments} if call.arguments is None else call.arguments
    )
    return {
        "id": call.id,
        "type": "function",
        "function": {
            "name": call.name or "unnamed",
            "arguments": json.dumps(arguments, ensure_ascii=False),
        },
    }
