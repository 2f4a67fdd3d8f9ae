"""Reads the JSON of an OpenAI-compatible endpoint's answer into typed values.

Servers agree on little but the names: a text may be a list of parts, arguments an object, an index
missing. Every form with one clear meaning is accepted; any other raises `Unreadable`. Texts may
contain half a surrogate pair, whose other half comes in the next chunk.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from loopline.agents.records import JsonObject
from loopline.workers.engines.text.text_stream import REPLACEMENT

JsonDict = dict[str, object]
TopLogprobs = tuple[tuple[str, float], ...]
"""The most likely tokens at one position."""


_DECODER = json.JSONDecoder(strict=False)
"""Shared: `json.loads` with an option makes a new decoder for each chunk."""
_ARGUMENTS = ("arguments", "parameters", "input", "args")


class Unreadable(Exception):
    """A value without a clear meaning: where it is, and what is wrong."""


@dataclass
class CallPiece:
    """A call, or in a stream a piece of a call."""

    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: str = ""
    extra: JsonObject | None = None
    """What the endpoint wants back with the call."""


@dataclass
class ChoicePart:
    """A completion, or in a stream a piece of a completion."""

    index: int
    text: str = ""
    reasoning: str = ""
    calls: list[CallPiece] = field(default_factory=list[CallPiece])
    finish: str = ""
    """Empty: not finished yet."""
    logprobs: list[float] = field(default_factory=list[float])
    tokens: list[str] = field(default_factory=list[str])
    top_logprobs: list[TopLogprobs] = field(default_factory=list[TopLogprobs])
    token_ids: list[int] = field(default_factory=list[int])
    is_message: bool = False
    """Whether a chunk has a whole message in place of a piece."""

    @property
    def has_content(self) -> bool:
        return bool(self.text or self.reasoning or self.calls)


def decode(raw: bytes | str) -> object:
    """Parse the JSON of an answer. Raises Unreadable."""
    text = raw.decode("utf-8-sig", "replace") if isinstance(raw, bytes) else raw
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the body: {error}") from error


def read_choices(
    payload: JsonDict, *, streamed: bool, logprobs: bool, tokens: bool, top_logprobs: bool
) -> list[ChoicePart]:
    """The choices of a whole answer or of a chunk, which may have none. Log-probabilities, token
    texts and most likely tokens are read only if requested. Raises Unreadable."""
    choices = payload.get("choices")
    if choices is None:
        if streamed:
            return []
        raise Unreadable("choices: this required field is missing")
    parts: list[ChoicePart] = []
    for position, choice in enumerate(_list(choices, "choices")):
        if choice is None:
            continue
        body = _dict(choice, f"choices.{position}")
        part = _choice(body, position, streamed=streamed)
        if logprobs:
            part.logprobs = _logprobs(body.get("logprobs"), f"choices.{position}.logprobs")
        elif tokens:
            # An answer is complete without them: the caller only reads them.
            with suppress(Unreadable):
                part.logprobs = _logprobs(body.get("logprobs"), f"choices.{position}.logprobs")
        if tokens:
            part.tokens = _tokens(body.get("logprobs"), f"choices.{position}.logprobs")
        if top_logprobs:
            part.top_logprobs = _top_logprobs(body.get("logprobs"), f"choices.{position}.logprobs")
        parts.append(part)
    if not streamed and len({part.index for part in parts}) < len(parts):
        for position, part in enumerate(parts):  # the server gives every choice the same index
            part.index = position
    return parts


def is_chunk(payload: object) -> bool:
    """Whether an event of a stream is a part of an answer: it has choices, or counts tokens."""
    if not isinstance(payload, dict):
        return False
    body = cast(JsonDict, payload)
    usage = body.get("usage")
    counts = cast(JsonDict, usage).values() if isinstance(usage, dict) else ()
    return body.get("choices") is not None or any(counts)


def read_ids(payload: JsonDict, name: str) -> list[int]:
    """Token ids; empty if the server sent none. Raises Unreadable."""
    ids = payload.get(name)
    if ids is None:
        return []
    items = _list(ids, name)
    if not all(type(item) is int for item in items):
        raise Unreadable(f"{name}: expected whole numbers")
    return cast(list[int], items)


def _choice(body: JsonDict, position: int, *, streamed: bool) -> ChoicePart:
    place = f"choices.{position}"
    index = body.get("index")
    part = ChoicePart(position if index is None else _int(index, f"{place}.index"))
    # Next to its delta, a chunk may have a whole `message` that repeats the earlier deltas.
    names = ("delta", "message") if streamed else ("message", "delta")
    name = next((name for name in names if body.get(name) is not None), None)
    part.is_message = streamed and name == "message"
    if name is not None:
        _read_message(_dict(body[name], f"{place}.{name}"), f"{place}.{name}", part)
    elif isinstance(body.get("text"), str):  # the format of /v1/completions
        part.text = cast(str, body["text"])
    finish = body.get("finish_reason")
    part.finish = "" if finish is None else str(finish).strip()
    part.token_ids = read_ids(body, "token_ids")
    return part


def _read_message(message: JsonDict, place: str, part: ChoicePart) -> None:
    text, thought = _content(message.get("content"), f"{place}.content")
    part.text = text or _text(message.get("refusal"), f"{place}.refusal")
    part.reasoning = _reasoning(message) or thought
    for position, call in enumerate(_list(message.get("tool_calls") or [], f"{place}.tool_calls")):
        if call is not None:
            part.calls.append(_call(call, f"{place}.tool_calls.{position}"))
    old = message.get("function_call")  # the format before parallel calls
    if old and not part.calls:
        part.calls.append(_call({"function": old}, f"{place}.function_call"))


def _content(content: object, place: str) -> tuple[str, str]:
    """Return (text, reasoning) of a text or of a list of parts."""
    if not isinstance(content, list):
        return _text(content, place), ""
    texts: list[str] = []
    thoughts: list[str] = []
    for position, item in enumerate(cast(list[object], content)):
        here = f"{place}.{position}"
        if isinstance(item, str):
            texts.append(item)
            continue
        body = _dict(item, here)
        kind = str(body.get("type", "text"))
        if kind in ("text", "output_text", "refusal"):
            value = body.get("text", body.get("refusal"))
            if isinstance(value, dict):
                value = cast(JsonDict, value).get("value")
            texts.append(_text(value, here))
        elif "think" in kind or "reason" in kind:
            thoughts.append(_reasoning_text(body))
        elif kind != "reference":  # Mistral's pointer to a source, without text
            raise Unreadable(f"{here}: a part of type {kind!r} is not text")
    return "".join(texts), "".join(thoughts)


def _reasoning(message: JsonDict) -> str:
    """Reasoning fields: vLLM's older and DeepSeek's, vLLM's newer and OpenRouter's, Ollama's,
    MiniMax's, GitHub Copilot's, LiteLLM's."""
    for name in (
        "reasoning_content", "reasoning", "thinking", "reasoning_details", "reasoning_text",
        "thinking_blocks",
    ):  # fmt: skip
        if value := message.get(name):
            return value if isinstance(value, str) else _reasoning_text(value)
    return ""


def _reasoning_text(value: object, depth: int = 0) -> str:
    """The reasoning texts, at any nesting depth; anything that is not text (a signature) is
    skipped."""
    if isinstance(value, str):
        return value
    if depth > 4:
        return ""
    if isinstance(value, list):
        return "".join(_reasoning_text(item, depth + 1) for item in cast(list[object], value))
    if isinstance(value, dict):
        body = cast(JsonDict, value)
        names = ("thinking", "text", "content", "summary", "reasoning")
        return "".join(_reasoning_text(body[name], depth + 1) for name in names if body.get(name))
    return ""


def _call(value: object, place: str) -> CallPiece:
    body = _dict(value, place)
    function = body.get("function")
    inner = body if function is None else _dict(function, f"{place}.function")
    index = body.get("index")
    identifier = body.get("id")
    extra = body.get("extra_content")
    # Cohere and Anthropic use other names: arguments under them would be lost silently.
    arguments = next((inner[name] for name in _ARGUMENTS if inner.get(name) is not None), None)
    if isinstance(arguments, dict | list):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return CallPiece(
        index=None if index is None else _int(index, f"{place}.index"),
        id="" if identifier is None else str(identifier),
        name=_text(inner.get("name"), f"{place}.function.name"),
        arguments=_text(arguments, f"{place}.function.arguments"),
        extra=cast(JsonObject, extra) if isinstance(extra, dict) else None,
    )


def _logprobs(value: object, place: str) -> list[float]:
    if value is None:
        return []
    body = _dict(value, place)
    content = body.get("content")
    if content is not None:
        numbers = [
            _dict(entry, f"{place}.content").get("logprob")
            for entry in _list(content, f"{place}.content")
        ]
    else:  # the format of /v1/completions
        numbers = _list(body.get("token_logprobs") or [], f"{place}.token_logprobs")
    for number in numbers:
        # Servers in Python also write NaN and Infinity, which no record can carry as JSON.
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise Unreadable(f"{place}: expected numbers")
        if not math.isfinite(number):
            raise Unreadable(f"{place}: expected finite numbers")
    return [float(cast(float, number)) for number in numbers]


def _tokens(value: object, place: str) -> list[str]:
    """The text of each token. A token whose bytes are not complete characters is U+FFFD, however
    the server writes it."""
    body = _dict(value or {}, place)
    content = body.get("content")
    if content is None:  # the format of /v1/completions
        tokens = _list(body.get("tokens") or [], f"{place}.tokens")
        return [_text(token, f"{place}.tokens") for token in tokens]
    texts: list[str] = []
    for entry in _list(content, f"{place}.content"):
        token = _dict(entry, f"{place}.content")
        texts.append(_token(token, f"{place}.content"))
    return texts


def _top_logprobs(value: object, place: str) -> list[TopLogprobs]:
    result: list[TopLogprobs] = []
    for entry in _list(_dict(value or {}, place).get("content") or [], f"{place}.content"):
        here = f"{place}.content.top_logprobs"
        pairs = _list(_dict(entry, f"{place}.content").get("top_logprobs") or [], here)
        logprobs = _logprobs({"content": pairs}, here)
        texts = [_token(_dict(pair, here), here) for pair in pairs]
        result.append(tuple(zip(texts, logprobs, strict=True)))
    return result


def _token(token: JsonDict, place: str) -> str:
    raw = token.get("bytes")
    if raw is None:
        return _text(token.get("token"), place)
    try:
        return bytes(cast(list[int], _list(raw, f"{place}.bytes"))).decode()
    except UnicodeDecodeError:
        return REPLACEMENT
    except (TypeError, ValueError) as error:
        raise Unreadable(f"{place}.bytes: expected bytes") from error


def _text(value: object, place: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Unreadable(f"{place}: expected a string, not {_kind(value)}")
    return value


def _int(value: object, place: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, float) and value.is_integer():  # as servers that use protobuf write it
        return int(value)
    if type(value) is not int:
        raise Unreadable(f"{place}: expected a whole number, not {_kind(value)}")
    return value


def _list(value: object, place: str) -> list[object]:
    if not isinstance(value, list):
        raise Unreadable(f"{place}: expected a list, not {_kind(value)}")
    return cast(list[object], value)


def _dict(value: object, place: str) -> JsonDict:
    if not isinstance(value, dict):
        raise Unreadable(f"{place}: expected an object, not {_kind(value)}")
    return cast(JsonDict, value)


def _kind(value: object) -> str:
    names: dict[type, str] = {
        dict: "an object", list: "a list", str: "a string", bool: "true or false",
        int: "a number", float: "a number", type(None): "null",
    }  # fmt: skip
    return names[type(value)]
