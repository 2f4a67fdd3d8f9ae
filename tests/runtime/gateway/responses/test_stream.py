"""The events of a response depend only on its run's log, and conform to OpenAI's types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from loopline.agents.records import Call, Decision, Outcome, ToolCall, Trajectory
from loopline.runtime.gateway.chat_stream import ChatStream, Diverged, StreamShape
from loopline.runtime.gateway.responses_body import ResponseView
from loopline.runtime.gateway.responses_stream import ResponseStream
from tests.runtime.gateway.responses.conftest import WEATHER, Event
from tests.runtime.gateway.responses.runs import call, trajectory_of, view_of

TYPES: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
LOOK = ToolCall(id="call_1", name="get_weather", arguments={"location": "SF"})


def tokens(*texts: str) -> list[dict[str, str]]:
    return [{"type": "tokens", "text": text} for text in texts]


def events_of(
    view: ResponseView, log: Iterable[dict[str, str]], trajectory: Trajectory
) -> list[Event]:
    stream = ResponseStream(view)
    events = stream.begin()
    for number, entry in enumerate(log):
        events += stream.feed(f"{number}-1", entry)
    events += stream.finish(trajectory)
    for event in events:
        TYPES.validate_python(event, strict=False)
    return events


def kinds(events: list[Event]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def said(events: list[Event], kind: str = "output_text") -> str:
    return "".join(e["delta"] for e in events if e["type"] == f"response.{kind}.delta")


def answered(view: ResponseView, *calls: Call) -> Trajectory:
    return trajectory_of(view, *calls)


def test_a_text_streams_the_events_of_its_item_its_part_and_its_deltas() -> None:
    view = view_of(stream=True)
    events = events_of(view, tokens("Hel", "lo"), answered(view, call("Hello")))
    assert kinds(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert said(events) == events[6]["text"] == "Hello"


def test_a_text_without_published_pieces_arrives_whole_at_the_end() -> None:
    view = view_of(stream=True)
    events = events_of(view, [], answered(view, call("Hello")))
    assert said(events) == "Hello"
    assert kinds(events)[-1] == "completed"


def test_regenerated_text_is_not_repeated() -> None:
    view = view_of(stream=True)
    log = [*tokens("one ", "two "), {"type": "restart", "text": "one "}, *tokens("two ", "three")]
    events = events_of(view, log, answered(view, call("one two three")))
    assert said(events) == "one two three"
    assert kinds(events).count("output_item.added") == 1


def test_regenerated_text_that_differs_ends_the_stream() -> None:
    stream = ResponseStream(view_of(stream=True))
    stream.feed("1-1", {"type": "tokens", "text": "one two"})
    with pytest.raises(Diverged, match="GET /v1/responses/resp_"):
        stream.feed("2-1", {"type": "restart", "text": "uno"})


def test_a_tool_call_streams_its_arguments_as_deltas() -> None:
    view = view_of(stream=True, tools=[WEATHER])
    events = events_of(view, [], answered(view, call("", LOOK)))
    assert kinds(events)[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert events[2]["item"]["arguments"] == ""
    assert events[-1]["response"]["output"] == [events[-2]["item"]]
    assert events[-2]["item"]["call_id"] == "call_1"


def test_reasoning_is_an_item_before_the_message() -> None:
    view = view_of()
    events = events_of(view, [], answered(view, call("Yes", reasoning="Hm.")))
    added = [e["item"]["type"] for e in events if e["type"] == "response.output_item.added"]
    assert added == ["reasoning", "message"]
    assert said(events, "reasoning_text") == "Hm."
    assert events[-1]["response"]["output"][0]["content"] == [
        {"type": "reasoning_text", "text": "Hm."}
    ]


def test_reasoning_and_calls_in_the_text_are_not_part_of_the_message() -> None:
    view = view_of(stream=True, tools=[WEATHER])
    markup = '<tool_call>\n{"name": "get_weather", "arguments": {"location": "SF"}}\n</tool_call>'
    text = f"<think>Hm.</think>\n\nLet me look.\n{markup}"
    trajectory = answered(view, call(text, LOOK))
    whole = events_of(view, tokens(text), trajectory)
    letters = events_of(view, tokens(*text), trajectory)
    for events in (whole, letters):
        assert said(events, "reasoning_text") == "Hm."
        assert said(events) == "Let me look."
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        assert [item["type"] for item in done] == ["reasoning", "message", "function_call"]
        assert done == events[-1]["response"]["output"]


def test_streamed_text_that_turns_out_to_be_reasoning_stays_and_the_answer_follows() -> None:
    text = "I add them.</think>\n\nSeven"
    view = view_of(stream=True)
    events = events_of(
        view, tokens("I add them.", "</think>", "\n\nSeven"), answered(view, call(text))
    )
    assert said(events) == "I add them.\n\nSeven"
    done = [event["text"] for event in events if event["type"] == "response.output_text.done"]
    assert done == ["Seven"]
    chat = ChatStream("run", StreamShape("llm", 0), streams_text=True)
    chunks = [
        chunk
        for number, entry in enumerate(tokens("I add them.", "</think>", "\n\nSeven"), 1)
        for chunk in chat.feed(f"{number}-0", entry)
    ]
    chunks += chat.finish(answered(view, call(text)))
    deltas = [
        c["delta"].get("content", "")
        for chunk in chunks
        if chunk.data
        for c in chunk.data["choices"]
    ]
    assert "".join(deltas) == "I add them.\n\nSeven"
    assert chunks[-1].data is None


def test_reasoning_that_an_endpoint_returns_at_the_end_follows_the_streamed_text() -> None:
    view = view_of(stream=True)
    trajectory = answered(view, call("Yes", reasoning="Hm."))
    events = events_of(view, tokens("Yes"), trajectory)
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "reasoning"]
    assert view.ended(trajectory)["output"] == output


def test_the_items_of_the_stream_equal_those_of_the_whole_response() -> None:
    view = view_of(stream=True, tools=[WEATHER])
    trajectory = answered(view, call("Let me look.", LOOK, reasoning="Hm."))
    events = events_of(view, tokens("Let me"), trajectory)
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert done == view.ended(trajectory)["output"] == events[-1]["response"]["output"]


def test_a_background_response_is_queued_until_its_log_has_an_entry() -> None:
    view = view_of(stream=True, background=True)
    stream = ResponseStream(view)
    assert kinds(stream.begin()) == ["created", "queued"]
    assert kinds(stream.feed("1-1", tokens("a")[0]))[0] == "in_progress"


@pytest.mark.parametrize(
    ("finish_reason", "why"),
    [("length", "max_output_tokens"), ("content_filter", "content_filter")],
)
def test_a_truncated_text_makes_the_response_incomplete(finish_reason: str, why: str) -> None:
    view = view_of(stream=True)
    cut = answered(view, call("Hel", finish_reason=finish_reason))
    last = events_of(view, tokens("Hel"), cut)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": why}
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_a_failed_run_ends_with_a_failed_response() -> None:
    view = view_of(stream=True)
    refused = Decision(
        kind="failed", data={"failure": "context_overflow", "reason": "9 of 8 tokens"}
    )
    trajectory = trajectory_of(view, outcome=Outcome.GAVE_UP, decision=refused)
    last = events_of(view, [], trajectory)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {"code": "invalid_prompt", "message": "9 of 8 tokens"}


def test_a_cancelled_run_ends_with_a_cancelled_response() -> None:
    view = view_of(stream=True)
    trajectory = trajectory_of(view, outcome=Outcome.CANCELLED, reason="enough")
    last = events_of(view, [], trajectory)[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "cancelled")
