"""Renders a run's log as the chunks of a streamed chat completion.

The chunks and their ids only depend on the log. A client that reconnects, to this gateway or
another, therefore gets the chunks that it has not seen: they are built again from the start of the
log, and those up to the client's last id are left out. A chunk's id is the log entry's id and the
number of the chunk within the entry: `1764144000000-0/1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from loopline.agents.records import Trajectory
from loopline.agents.visible_text import TextPiece, VisibleText
from loopline.runtime.gateway.chat_response import (
    Answer,
    Choice,
    answer_of,
    completion_id,
    content_of,
    logprobs_of,
    tool_call_body,
)
from loopline.runtime.gateway.errors import ApiError

BEGIN = "0-0"
"""Entry id of chunks that come before any log entry."""

_FIELDS: dict[str, Literal["content", "reasoning_content"]] = {
    "content": "content",
    "reasoning": "reasoning_content",
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of the stream."""

    id: str
    data: dict[str, Any] | None
    """Content of a chunk; None ends the stream with `[DONE]`."""


@dataclass(frozen=True)
class StreamShape:
    """Format of the stream as the caller requested it."""

    model: str
    """Model as the caller named it."""
    created: int
    include_usage: bool = False
    logprobs: bool = False
    token_ids: bool = False
    offered: tuple[str, ...] = ()
    """Names of the tools that the model may call."""


class Diverged(ApiError):
    """Raised when a model was asked again after its worker died, and its new text differs from the
    beginning that the client already has."""

    def __init__(self, path: str) -> None:
        super().__init__(
            502,
            "the model's worker died, and another one started again with other words: GET"
            f" {path} returns the whole answer once it is complete",
            code="generation_restarted",
        )


@dataclass
class GrowingText:
    """One field of an answer: the emitted text and the current state of the whole text."""

    path: str
    """Path of the field in the whole answer."""
    emitted: str = ""
    current: str = ""

    def restart(self) -> None:
        self.current = ""

    def grow(self, text: str) -> str:
        """Return the part of the text that is new to the client. Raises `Diverged`."""
        begin = len(self.current)
        self.current += text
        overlap = self.emitted[begin : begin + len(text)]
        if text[: len(overlap)] != overlap:
            raise Diverged(self.path)
        new = text[len(overlap) :]
        self.emitted += new
        return new


@dataclass
class ChatStream:
    """Builds the chunks of one run. Feed it the log entries in order, then the trajectory."""

    run_id: str
    shape: StreamShape
    streams_text: bool
    """Whether the run's tokens are those of the answer: true for the workflow `chat`, false for a
    team."""
    _entry: str = BEGIN
    _number: int = 0
    _text: VisibleText | None = None
    _fields: dict[str, GrowingText] = field(init=False)

    def __post_init__(self) -> None:
        path = f"/v1/chat/completions/{completion_id(self.run_id)}"
        self._fields = {kind: GrowingText(path) for kind in _FIELDS}

    def begin(self) -> list[Chunk]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def feed(self, entry: str, event: dict[str, str]) -> list[Chunk]:
        """Return the chunks that a log entry adds. Raises `Diverged`."""
        self._entry, self._number = entry, 0
        if not self.streams_text or event["type"] not in ("tokens", "restart"):
            return []
        if event["type"] == "restart":
            self._text = None
            for part in self._fields.values():
                part.restart()
        if self._text is None:
            self._text = VisibleText(offered=self.shape.offered)
        return list(self._deltas(self._text.feed(event["text"])))

    def finish(self, trajectory: Trajectory) -> list[Chunk]:
        """Return the chunks after the end of the run: the rest of the text, tool calls, the finish
        reason, the usage. Raises `ApiError` for a run without an answer."""
        answer = answer_of(trajectory, self.shape.model)
        chunks = list(self._rest(answer.choices[0]))
        for index, choice in enumerate(answer.choices):
            if index:
                chunks.append(self._chunk({"role": "assistant", "content": ""}, index=index))
                if content := content_of(choice.message):
                    chunks.append(self._chunk({"content": content}, index=index))
            for position, call in enumerate(choice.message.tool_calls):
                delta = {"tool_calls": [{"index": position, **tool_call_body(call)}]}
                chunks.append(self._chunk(delta, index=index))
            chunks.append(self._last(answer, choice, index))
        usage = self._chunk(None, usage=answer.usage)  # its id is taken even if it is left out
        if self.shape.include_usage:
            chunks.append(usage)
        chunks.append(Chunk(self._next_id(), None))
        return chunks

    def _rest(self, choice: Choice) -> Iterator[Chunk]:
        """Yield the record's content beyond the published tokens; all of it if none were
        published."""
        whole = {"reasoning": choice.reasoning, "content": content_of(choice.message) or ""}
        if self._text is not None and self._text.corrected:
            # Text that was already shown turned out to be a thought. It stays; the answer follows.
            yield from self._deltas(self._text.finish())
            if self._fields["content"].emitted.endswith(whole["content"]):
                return
        for kind, text in whole.items():
            part = self._fields[kind]
            part.restart()
            if kind == "reasoning" and self._fields["content"].emitted:
                continue  # thoughts from a separate field that no delta had: too late
            if new := part.grow(text):
                yield self._chunk({_FIELDS[kind]: new})

    def _last(self, answer: Answer, choice: Choice, index: int) -> Chunk:
        extra: dict[str, Any] = {}
        if self.shape.logprobs:
            extra["logprobs"] = logprobs_of(choice.call)
        if self.shape.token_ids and choice.call is not None:
            extra["token_ids"] = list(choice.call.output_ids)
        chunk = self._chunk({}, index=index, finish_reason=choice.finish_reason, **extra)
        assert chunk.data is not None
        chunk.data["system_fingerprint"] = answer.fingerprint
        if self.shape.token_ids and index == 0 and choice.call is not None:
            chunk.data["prompt_token_ids"] = list(choice.call.prompt_ids)
        return chunk

    def _deltas(self, pieces: Iterable[TextPiece]) -> Iterator[Chunk]:
        for piece in pieces:
            if new := self._fields[piece.kind].grow(piece.text):
                yield self._chunk({_FIELDS[piece.kind]: new})

    def _chunk(
        self,
        delta: dict[str, Any] | None,
        *,
        index: int = 0,
        finish_reason: str | None = None,
        usage: dict[str, Any] | None = None,
        **extra: Any,
    ) -> Chunk:
        choices: list[dict[str, Any]] = []
        if delta is not None:
            choices.append(
                {
                    "index": index,
                    "delta": delta,
                    "logprobs": None,
                    "finish_reason": finish_reason,
                    **extra,
                }
            )
        data: dict[str, Any] = {
            "id": completion_id(self.run_id),
            "object": "chat.completion.chunk",
            "created": self.shape.created,
            "model": self.shape.model,
            "choices": choices,
        }
        if self.shape.include_usage:
            data["usage"] = usage
        return Chunk(self._next_id(), data)

    def _next_id(self) -> str:
        self._number += 1
        return f"{self._entry}/{self._number}"


_EVENT_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})/([0-9]{1,9})")


def place_of(event_id: str) -> tuple[int, int, int]:
    """Return an event's place in its stream, to compare. Raises ValueError for an invalid id."""
    match = _EVENT_ID.fullmatch(event_id)
    if match is None:
        raise ValueError(f"{event_id[:64]!r} is not the id of an event")
    return int(match[1]), int(match[2]), int(match[3])
