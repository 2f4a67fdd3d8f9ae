"""Renders a run's log as the semantic events of a streamed response.

The events and their sequence numbers only depend on the log. A client that reconnects, to this
gateway or another, therefore gets the events that it has not seen: they are built again from the
start of the log, and those up to the client's last number are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from loopline.agents.records import Trajectory
from loopline.agents.visible_text import VisibleText
from loopline.runtime.gateway.chat_response import Choice, answer_of, content_of
from loopline.runtime.gateway.chat_stream import GrowingText
from loopline.runtime.gateway.errors import ApiError
from loopline.runtime.gateway.responses_body import ResponseView, response_id
from loopline.runtime.gateway.responses_items import (
    ItemKind,
    message_id,
    message_item,
    reasoning_id,
    reasoning_item,
    text_order,
    text_part,
)

Event = dict[str, Any]

_ENDS = {"completed": "response.completed", "incomplete": "response.incomplete"}
"""Last event by status; a response that failed or was cancelled ends with `response.failed`."""
_CALLS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}
"""The field with a call's text and the name of that text's events, by the type of the item."""
_NAMES: dict[ItemKind, str] = {
    "reasoning": "response.reasoning_text",
    "content": "response.output_text",
}


@dataclass
class ResponseStream:
    """Events of one response. Implements `loopline.runtime.gateway.service.Rendering`."""

    view: ResponseView
    _number: int = -1
    _started: bool = False
    _order: list[ItemKind] = field(default_factory=list[ItemKind])
    """Kinds of the text's items, by index in the output."""
    _texts: dict[ItemKind, GrowingText] = field(init=False)
    _visible: VisibleText | None = None

    def __post_init__(self) -> None:
        path = f"/v1/responses/{response_id(self.view.run.id)}"
        self._texts = {"reasoning": GrowingText(path), "content": GrowingText(path)}

    def begin(self) -> list[Event]:
        if self.view.record.background:
            queued = self.view.body("queued")
            return [
                self._event("response.created", response=queued),
                self._event("response.queued", response=queued),
            ]
        created = self._event("response.created", response=self.view.body("in_progress"))
        return [created, *self._start()]

    def feed(self, entry: str, event: dict[str, str]) -> list[Event]:
        """Return the events that a log entry adds. Raises `Diverged`."""
        if "type" not in event:
            return []
        events = list(self._start())
        if not self.view.streams_text or event["type"] not in ("tokens", "restart"):
            return events
        if event["type"] == "restart":
            self._visible = None
            for text in self._texts.values():
                text.restart()
        if self._visible is None:
            offered = tuple(tool.name for tool in self.view.options.tools)
            self._visible = VisibleText(offered=offered)
        for piece in self._visible.feed(event["text"]):
            events += self._grow(piece.kind, piece.text)
        return events

    def finish(self, trajectory: Trajectory) -> list[Event]:
        """Return the events after the end of the run: the rest of the text, the ends of the items,
        the tool calls, the complete response. Raises `Diverged`."""
        events = list(self._start())
        try:
            answer = answer_of(trajectory, self.view.model)
        except ApiError:
            response = self.view.ended(trajectory)
        else:
            events += self._rest(answer.choices[0])
            response = self.view.ended(trajectory, self._order)
            for index, item in enumerate(response["output"]):
                events += self._call(index, item) if item["type"] in _CALLS else ()
                events += self._end(index, item)
        events.append(
            self._event(_ENDS.get(response["status"], "response.failed"), response=response)
        )
        return events

    def _start(self) -> Iterator[Event]:
        if not self._started:
            self._started = True
            yield self._event("response.in_progress", response=self.view.body("in_progress"))

    def _rest(self, choice: Choice) -> Iterator[Event]:
        """Yield the record's content beyond the published tokens; all of it if none were
        published."""
        whole: Mapping[ItemKind, str] = {
            "reasoning": choice.reasoning,
            "content": content_of(choice.message) or "",
        }
        if self._visible is not None and self._visible.corrected:
            # Text that was already shown turned out to be a thought. It stays; the answer follows.
            for piece in self._visible.finish():
                yield from self._grow(piece.kind, piece.text)
            if self._texts["content"].emitted.endswith(whole["content"]):
                whole = {**whole, "content": self._texts["content"].emitted}
        order = text_order(choice, streamed=self.view.run.stream)
        kinds: list[ItemKind] = [*self._order, *(kind for kind in order if kind not in self._order)]
        for kind in kinds:
            self._texts[kind].restart()
            if kind not in self._order:
                yield from self._add(kind)
            yield from self._grow(kind, whole[kind])

    def _add(self, kind: ItemKind) -> Iterator[Event]:
        index, run_id = len(self._order), self.view.run.id
        self._order.append(kind)
        if kind == "reasoning":
            item, part = reasoning_item(run_id, ""), {"type": "reasoning_text", "text": ""}
        else:
            item, part = message_item(run_id, ""), text_part("")
        item |= {"status": "in_progress", "content": []}
        yield self._event("response.output_item.added", output_index=index, item=item)
        yield self._event(
            "response.content_part.added", **self._place(kind), content_index=0, part=part
        )

    def _grow(self, kind: ItemKind, text: str) -> Iterator[Event]:
        if text and kind not in self._order:
            yield from self._add(kind)
        if new := self._texts[kind].grow(text):
            extra = {"logprobs": []} if kind == "content" else {}
            yield self._event(
                f"{_NAMES[kind]}.delta", **self._place(kind), content_index=0, delta=new, **extra
            )

    def _end(self, index: int, item: dict[str, Any]) -> Iterator[Event]:
        if item["type"] not in _CALLS:
            kind = self._order[index]
            part = item["content"][0]
            extra = {"logprobs": part["logprobs"]} if kind == "content" else {}
            place = {**self._place(kind), "content_index": 0}
            yield self._event(f"{_NAMES[kind]}.done", **place, text=part["text"], **extra)
            yield self._event("response.content_part.done", **place, part=part)
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _call(self, index: int, item: dict[str, Any]) -> Iterator[Event]:
        part, name = _CALLS[item["type"]]
        begun = {**item, part: "", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=index, item=begun)
        place, text = {"item_id": item["id"], "output_index": index}, item[part]
        extra = {"name": item["name"]} if part == "arguments" else {}
        yield self._event(f"{name}.delta", **place, delta=text)
        yield self._event(f"{name}.done", **place, **extra, **{part: text})

    def _place(self, kind: ItemKind) -> dict[str, Any]:
        run_id = self.view.run.id
        item_id = reasoning_id(run_id) if kind == "reasoning" else message_id(run_id)
        return {"item_id": item_id, "output_index": self._order.index(kind)}

    def _event(self, kind: str, **fields: Any) -> Event:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **fields}


def error_event(error: ApiError, last: int) -> Event:
    """Return the event that ends a stream that can't continue here. It has the number of the last
    event that was sent, so that a client that reconnects with it misses no event."""
    return {
        "type": "error",
        "sequence_number": max(last, 0),
        "code": error.code,
        "message": error.message,
        "param": error.param,
    }
