"""One answer of the scripted server, whole and as a stream of chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from loopline.agents.records import Message, ToolCall, ToolSpec, Usage
from loopline.workers.engines.faults import FaultKind, unit_interval
from loopline.workers.engines.scripted.engine import (
    PackedText,
    break_json,
    render_chatml,
    reply_seed,
)
from loopline.workers.engines.scripted.script import (
    ScriptedReply,
    conversation_key,
    offered,
    scripted_reply,
)
from loopline.workers.engines.text.text_stream import TextStream
from loopline.workers.engines.text.tool_markup import tool_call_id, write_tool_call
from loopline.workers.scripted_api.wire import ApiError, ChatRequest

Reply = Callable[[Sequence[Message], Sequence[ToolSpec]], ScriptedReply]
"""Generates the next turn of a conversation, in place of the script."""
_CODEC = PackedText()
_CREATED = 1_700_000_000
"""A fixed time, so that equal requests get equal answers, byte for byte."""


@dataclass(frozen=True)
class Choice:
    """One completion, with token ids for its words and its tool-call markup."""

    content: str
    calls: tuple[ToolCall, ...]
    ids: tuple[int, ...]
    finish_reason: str


class Answer:
    """All choices for one request. Raises ApiError for a prompt that does not fit."""

    def __init__(
        self,
        body: ChatRequest,
        *,
        mistake_rate: float = 0.0,
        max_context: int | None = None,
        fault: FaultKind | None = None,
        reply: Reply | None = None,
    ) -> None:
        messages, tools = body.conversation(), body.tool_specs()
        self._body = body
        self._tool_choice = body.choice()
        self._fault = fault
        self._reply = reply
        self.prompt_ids = _CODEC.encode(render_chatml(messages, tools))
        if max_context is not None and len(self.prompt_ids) >= max_context:
            raise ApiError(
                400,
                "context_length_exceeded",
                f"This model's maximum context length is {max_context} tokens. However, your "
                f"messages resulted in {len(self.prompt_ids)} tokens.",
            )
        self.content_hash = content_hash(body)
        room = body.sampling().max_tokens
        if max_context is not None:
            room = min(room, max_context - len(self.prompt_ids))
        self.choices = [self._choice(index, mistake_rate, room) for index in range(body.n)]
        turns = [i for i, message in enumerate(messages) if message.role == "assistant"]
        cached = 0
        if turns:
            cached = len(_CODEC.encode(render_chatml(messages[: turns[-1]], tools)))
        self.usage = Usage(
            prompt=len(self.prompt_ids),
            cached=min(cached, len(self.prompt_ids)),
            completion=sum(len(choice.ids) for choice in self.choices),
            source="provider",
        )

    @property
    def tokens(self) -> int:
        """Length of the longest choice; choices are generated in parallel."""
        return max(len(choice.ids) for choice in self.choices)

    def whole(self) -> dict[str, Any]:
        """Body of a non-streamed response."""
        choices: list[dict[str, Any]] = []
        for index, choice in enumerate(self.choices):
            message: dict[str, Any] = {"role": "assistant", "content": choice.content or None}
            if choice.calls:
                message["tool_calls"] = [_call(call) for call in choice.calls]
            entry: dict[str, Any] = {
                "index": index,
                "message": message,
                "finish_reason": choice.finish_reason,
            }
            if self._body.logprobs:
                entry["logprobs"] = {"content": _logprobs(self.prompt_ids, choice.ids)}
            if self._body.return_token_ids:
                entry["token_ids"] = choice.ids
            choices.append(entry)
        body = {**self._head("chat.completion"), "choices": choices}
        if self._body.return_token_ids:
            body["prompt_token_ids"] = self.prompt_ids
        if self._fault != "missing_usage":
            body["usage"] = self._usage()
        return body

    def chunks(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Pairs of (number of tokens in this chunk, chunk), in sending order."""
        for index, choice in enumerate(self.choices):
            opening: dict[str, Any] = {"role": "assistant", "content": ""}
            extra: dict[str, Any] = {}
            if self._body.return_token_ids:
                extra["prompt_token_ids"] = self.prompt_ids
            yield 0, self._chunk(index, opening, extra=extra)
            yield from self._words(index, choice)
            for position, call in enumerate(choice.calls):
                half = len(call.raw_arguments) // 2
                first = _call(call, call.raw_arguments[:half])
                rest = {"function": {"arguments": call.raw_arguments[half:]}}
                yield 0, self._chunk(index, {"tool_calls": [{"index": position, **first}]})
                yield 0, self._chunk(index, {"tool_calls": [{"index": position, **rest}]})
            yield 0, self._chunk(index, {}, finish=choice.finish_reason)
        if self._body.stream_options.include_usage and self._fault != "missing_usage":
            yield (
                0,
                {
                    **self._head("chat.completion.chunk"),
                    "choices": [],
                    "usage": self._usage(),
                },
            )

    def _words(self, index: int, choice: Choice) -> Iterator[tuple[int, dict[str, Any]]]:
        """Chunks of the content. The ids and logprobs of the markup come with the last chunk."""
        stream = TextStream(_CODEC, self._body.sampling().stop)
        token_start, sent = 0, 0
        before = [self.prompt_ids[-1], *choice.ids]
        for position, token in enumerate(choice.ids):
            piece = stream.push(token)
            piece = piece[: max(0, len(choice.content) - sent)]
            sent += len(piece)
            if position + 1 == len(choice.ids):
                piece += choice.content[sent:]
            elif not piece:
                continue
            ids = choice.ids[token_start : position + 1]
            logprobs = _logprobs([before[token_start]], ids) if self._body.logprobs else None
            extra = {"token_ids": ids} if self._body.return_token_ids else {}
            yield len(ids), self._chunk(index, {"content": piece}, logprobs=logprobs, choice=extra)
            token_start = position + 1

    def _choice(self, index: int, mistake_rate: float, room: int) -> Choice:
        sampling, tools, choice = self._body.sampling(), self._body.tool_specs(), self._tool_choice
        reply = (
            scripted_reply(
                self._body.conversation(),
                offered(tools, choice),
                seed=reply_seed(sampling, index),
                mistake_rate=mistake_rate,
                json_schema=self._body.json_schema(),
            )
            if self._reply is None
            else self._reply(self._body.conversation(), offered(tools, choice))
        ).constrained_to(tools, choice, parallel=self._body.parallel_tool_calls)
        markup = [write_tool_call(call.name, call.arguments) for call in reply.calls]
        ids = _CODEC.encode("\n".join([reply.text, *markup]))
        stream = TextStream(_CODEC, sampling.stop)
        for count, token in enumerate(ids[:room], start=1):
            stream.push(token)
            if stream.stopped:
                return Choice(stream.text, (), tuple(ids[:count]), "stop")
        stream.finish()
        if len(ids) > room:
            return Choice(stream.text[: len(reply.text)], (), tuple(ids[:room]), "length")
        calls = tuple(
            ToolCall(
                id=tool_call_id(f"{self.content_hash}/{index}", position),
                name=call.name,
                arguments=call.arguments,
                raw_arguments=self._arguments(markup[position]),
            )
            for position, call in enumerate(reply.calls)
        )
        return Choice(reply.text, calls, tuple(ids), "tool_calls" if calls else "stop")

    def _arguments(self, markup: str) -> str:
        raw = markup[markup.index('"arguments": ') + len('"arguments": ') : markup.rindex("}")]
        return break_json(raw) if self._fault == "malformed_tool_call" else raw

    def _usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.usage.prompt,
            "completion_tokens": self.usage.completion,
            "total_tokens": self.usage.prompt + self.usage.completion,
            "prompt_tokens_details": {"cached_tokens": self.usage.cached},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.content_hash}",
            "object": kind,
            "created": _CREATED,
            "model": self._body.model,
        }

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        finish: str | None = None,
        logprobs: list[dict[str, Any]] | None = None,
        choice: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        entry: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": finish}
        if logprobs is not None:
            entry["logprobs"] = {"content": logprobs}
        return {
            **self._head("chat.completion.chunk"),
            **(extra or {}),
            "choices": [{**entry, **(choice or {})}],
        }


def content_hash(body: ChatRequest) -> str:
    """A hash that is equal for equal requests to the same model, streamed or not."""
    constraints = (body.tool_choice, body.parallel_tool_calls)
    key = conversation_key(
        body.conversation(), body.tool_specs(), body.model, body.sampling(), body.json_schema(),
        *(() if constraints == ("auto", True) else constraints),
    )  # fmt: skip
    return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


def _call(call: ToolCall, arguments: str | None = None) -> dict[str, Any]:
    raw = call.raw_arguments if arguments is None else arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": raw}}


def _logprobs(prompt_ids: list[int], ids: tuple[int, ...]) -> list[dict[str, Any]]:
    before = [prompt_ids[-1], *ids]
    return [
        {
            "token": _CODEC.decode([token]),
            "logprob": -unit_interval("logprob", last, token),
            "bytes": None,
            "top_logprobs": [],
        }
        for last, token in zip(before, ids, strict=False)
    ]
