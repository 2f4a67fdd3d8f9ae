"""Builds the requests to an OpenAI-compatible endpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from loopline.agents.embedding import EmbeddingInput
from loopline.agents.records import (
    ANY_JSON_OBJECT,
    JsonObject,
    Message,
    SamplingParams,
    ToolCall,
    ToolSpec,
)
from loopline.agents.thinking import split_thoughts, text_without_thoughts
from loopline.agents.token_limits import NO_LIMIT
from loopline.workers.engines.openai.habits import Habits
from loopline.workers.engines.openai.strict_schemas import is_strict
from loopline.workers.engines.protocol import EngineError, GenerateRequest
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.chat_prompt import template_tools
from loopline.workers.engines.text.template_habits import move_system_first, short_id
from loopline.workers.engines.text.tool_markup import strip_tool_calls, tool_call_id
from loopline.workers.json_bytes import json_bytes

NO_OUTPUT = "(no output)"
"""Sent for a tool's empty text where a server refuses that."""
MAX_SEED = 2**31 - 1
"""Some servers refuse a seed that is not a signed 32-bit number."""


def request_body(
    request: GenerateRequest, settings: ModelSettings, habits: Habits | None = None
) -> dict[str, Any]:
    """The JSON of `POST /chat/completions`, or of `POST /embeddings`.

    Raises EngineError of kind `bad_request` for anything that this endpoint is not configured to
    support, or a conversation that no endpoint accepts.
    """
    if settings.embeddings:
        return embeddings_body(request, settings)
    habits = habits or Habits(settings)
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": settings.model,
        "messages": _messages(request.messages, habits),
    }
    if not sampling.endpoint_temperature:
        body["temperature"] = sampling.temperature
    if sampling.max_tokens != NO_LIMIT:
        body[habits.limit_field] = sampling.max_tokens
    if request.tools:
        body["tools"] = _offered(request.tools)
        body.update(_choice(request))
    if sampling.top_p != 1.0:
        body["top_p"] = sampling.top_p
    if sampling.top_k and "top_k" not in habits.left_out:
        if not settings.top_k:
            raise EngineError(
                f"request {request.id} asks for top_k = {sampling.top_k}, which the endpoint of "
                f"{settings.model!r} is not known to support; set top_k = true in its "
                "[models] table if it does",
                kind="bad_request",
            )
        body["top_k"] = sampling.top_k
    if sampling.frequency_penalty:
        body["frequency_penalty"] = sampling.frequency_penalty
    if sampling.presence_penalty:
        body["presence_penalty"] = sampling.presence_penalty
    if sampling.reasoning_effort is not None:
        body["reasoning_effort"] = sampling.reasoning_effort
    if sampling.verbosity is not None:
        body["verbosity"] = sampling.verbosity
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.seed is not None:
        body["seed"] = sampling.seed & MAX_SEED
    if sampling.n != 1:
        body["n"] = sampling.n
    if keeps_logprobs(settings, sampling, habits) or request.token_texts or request.top_logprobs:
        body["logprobs"] = True
        # llama-cpp-python's server returns no logprobs without this.
        body["top_logprobs"] = request.top_logprobs
    if switches := {**settings.template_options, **request.template_options}:
        body["chat_template_kwargs"] = switches
    if settings.token_ids:
        body["return_token_ids"] = True
    if request.json_schema is not None:
        body["response_format"] = _response_format(request.json_schema, habits)
    if request.stream and "stream" not in habits.left_out:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    left_out = habits.left_out
    if "logprobs" in left_out:
        left_out = left_out | {"top_logprobs"}
    for name in left_out:
        body.pop(habits.limit_field if name == "max_tokens" else name, None)
    return body


def _response_format(schema: JsonObject, habits: Habits) -> JsonObject:
    if schema == ANY_JSON_OBJECT and habits.json_mode:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": is_strict(schema)},
    }


def embeddings_body(request: GenerateRequest, settings: ModelSettings) -> dict[str, Any]:
    """Request vectors as plain JSON numbers, which every server supports. Raises like
    `request_body`."""
    try:
        wanted = EmbeddingInput.model_validate_json(request.messages[-1].content)
    except ValidationError as error:
        raise EngineError(
            f"the model {settings.model!r} only computes embeddings: send the request to POST "
            "/v1/embeddings, or leave embeddings out of its [models] table",
            kind="bad_request",
        ) from error
    return {"model": settings.model, **wanted.model_dump(mode="json", exclude_defaults=True)}


def keeps_logprobs(
    settings: ModelSettings, sampling: SamplingParams, habits: Habits | None = None
) -> bool:
    """Whether the endpoint's logprobs are those of the distribution that was sampled from.

    Raw logprobs are, if temperature and filters change nothing; greedy decoding reports the softmax
    of the raw logits by convention, in every engine. If temperature or top_p are left out, the
    distribution is unknown.
    """
    if sampling.endpoint_temperature:
        return False
    if settings.logprobs == "raw":
        if habits is not None and habits.left_out & {"temperature", "top_p", "top_k"}:
            return False
        plain = sampling.temperature == 1.0 and sampling.top_p == 1.0 and sampling.top_k == 0
        return (plain or sampling.temperature == 0.0) and not sampling.penalizes
    return settings.logprobs == "processed"


def _offered(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    offered: list[dict[str, Any]] = template_tools(tools) or []
    for entry, tool in zip(offered, tools, strict=True):
        if tool.strict is not None:
            entry["function"]["strict"] = tool.strict
    return offered


def _choice(request: GenerateRequest) -> dict[str, Any]:
    """Fields that state which tools may be called, and how often, if that differs from the
    endpoints' default."""
    fields: dict[str, Any] = {}
    choice = request.tool_choice
    if choice.name is not None:
        fields["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    elif choice.mode != "auto":
        fields["tool_choice"] = choice.mode
    if not request.parallel_tool_calls:
        fields["parallel_tool_calls"] = False
    return fields


def _messages(messages: Sequence[Message], habits: Habits) -> list[dict[str, Any]]:
    """The conversation, with a unique id for each call: some servers give every call the same id or
    none, and refuse or confuse the answers to such calls."""
    result: list[dict[str, Any]] = []
    call_ids: set[str] = set()
    waiting: list[tuple[str, str]] = []
    for place, message in enumerate(
        messages if habits.late_system else move_system_first(messages)
    ):
        entry = _message(message, habits.no_content)
        if habits.sends_thoughts and message.role == "assistant":
            text = message.content or message.raw_text or ""
            entry["reasoning_content"] = message.thought or split_thoughts(text).thought or " "
        if message.name is not None and message.role != "tool":
            entry["name"] = message.name
        if message.tool_calls:
            waiting = []
            for position, call in enumerate(message.tool_calls):
                sent = call.id
                if not sent or sent in call_ids:
                    sent = tool_call_id(f"{place}", position)
                call_ids.add(sent)
                waiting.append((call.id, sent))
                entry["tool_calls"][position]["id"] = sent
                if habits.sends_extras and call.extra_content is not None:
                    entry["tool_calls"][position]["extra_content"] = call.extra_content
                elif habits.signs_calls and position == 0:
                    entry["tool_calls"][position]["extra_content"] = UNSIGNED
        elif message.role == "tool":
            for id_pair in waiting:
                if id_pair[0] == message.tool_call_id:
                    entry["tool_call_id"] = id_pair[1]
                    waiting.remove(id_pair)
                    break
        result.append(entry)
    if not habits.long_ids:
        for entry in result:
            for call in entry.get("tool_calls", ()):
                call["id"] = short_id(call["id"])
            if "tool_call_id" in entry:
                entry["tool_call_id"] = short_id(entry["tool_call_id"])
    return result


UNSIGNED: JsonObject = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""Value for a call whose signature is unknown: Gemini accepts it for calls that it did not write
(https://ai.google.dev/gemini-api/docs/thought-signatures)."""


def _message(message: Message, no_content: str | None) -> dict[str, Any]:
    match message.role:
        case "assistant":
            content = text_without_thoughts(message.content or message.raw_text or "")
            if message.tool_calls:
                # A local model's text contains its calls as markup; here they have a separate
                # field.
                content = strip_tool_calls(content)
            entry: dict[str, Any] = {"role": "assistant", "content": content}
            if message.tool_calls:
                entry["content"] = content or no_content
                entry["tool_calls"] = [_call(call) for call in message.tool_calls]
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
                "content": message.content or (NO_OUTPUT if no_content is None else ""),
            }
        case role:
            return {"role": role, "content": _parts(message) or message.content}


def _parts(message: Message) -> list[dict[str, Any]]:
    """Content parts of a message with images; empty for a message with only text."""
    return [
        {"type": "text", "text": part.text}
        if part.type == "text"
        else {
            "type": "image_url",
            "image_url": {"url": part.url, **({"detail": part.detail} if part.detail else {})},
        }
        for part in message.parts
    ]


def most_prompt_tokens(request: GenerateRequest, content: bytes, of_image: int) -> int:
    """Upper bound of the tokens of a request that is sent as `content`: with any tokenizer, a token
    takes at least one byte; an image has at most `of_image` tokens, however many bytes it has."""
    images = [
        part for message in request.messages for part in message.parts if part.type == "image"
    ]
    return len(content) - sum(len(image.url) for image in images) + of_image * len(images)


def _call(call: ToolCall) -> dict[str, Any]:
    # Servers parse the arguments in the history again. A malformed call of an earlier turn must not
    # make every later request of the conversation fail, so its text is sent wrapped in an object.
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


ANSWERS_PER_KEY = 2
"""Useless answers after which a request gets another key."""


def idempotency_key(request: GenerateRequest, body: dict[str, Any], useless: int) -> str:
    """The key that lets an endpoint that supports `Idempotency-Key` answer, and bill, only once.

    A repetition has the key of the previous try, also from another worker or for a step that is
    retried: a caller that was cut off gets the answer that was paid for. `useless` answers could
    not be read. One of them may have been damaged on the way, while the endpoint has it intact and
    returns it to another worker for this key; after two, the key changes. It also changes with the
    body, since such an endpoint refuses another body under the same key.
    """
    if not request.idempotency_key:
        return ""
    digest = hashlib.blake2b(
        json_bytes([request.id, body], sort_keys=True), digest_size=6
    ).hexdigest()
    return f"{request.idempotency_key}/{digest}/{useless // ANSWERS_PER_KEY}"
