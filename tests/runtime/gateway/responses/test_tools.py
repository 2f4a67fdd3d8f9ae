"""Custom tools and namespaces, which Codex and OpenAI's clients send, are functions for a model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from loopline.agents.records import MAX_TOOLS, ToolCall
from loopline.runtime.gateway.errors import ApiError, validated
from loopline.runtime.gateway.responses_items import input_items, items_of, messages_of
from loopline.runtime.gateway.responses_request import ResponseRequest
from loopline.runtime.gateway.responses_stream import ResponseStream
from loopline.runtime.gateway.responses_tools import function_name
from tests.runtime.gateway.responses.conftest import WEATHER
from tests.runtime.gateway.responses.runs import call, trajectory_of, view_of

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" REST'}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": GRAMMAR}
SPAWN = {**WEATHER, "name": "spawn"}
AGENTS = {"type": "namespace", "name": "agents", "description": "Helpers.", "tools": [SPAWN]}
NOTE = {**PATCH, "name": "note", "format": {"type": "text"}}
TOOLS = [WEATHER, PATCH, {**AGENTS, "tools": [SPAWN, NOTE]}]
CALLS = (
    ToolCall(id="c1", name="get_weather", arguments={"city": "Rome"}),
    ToolCall(id="c2", name="apply_patch", arguments={"input": "*** Begin Patch\n°"}),
    ToolCall(id="c3", name="agents__spawn", arguments={}),
    ToolCall(id="c4", name="agents__note", arguments={"input": "x"}),
)


def requested(*tools: Any, **fields: Any) -> ResponseRequest:
    body = {"model": "llm", "input": "Go.", "tools": list(tools), **fields}
    return validated(ResponseRequest, body)


def refusal(*tools: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        requested(*tools)
    return caught.value


def test_every_tool_is_a_function_for_the_model() -> None:
    specs = requested(*TOOLS).options.tools
    assert [spec.name for spec in specs] == [tool_call.name for tool_call in CALLS]
    patch = specs[1]
    assert patch.description == "Edits."
    assert patch.parameters["required"] == ["input"]
    assert GRAMMAR["definition"] in json.dumps(patch.parameters, ensure_ascii=False).replace(
        '\\"', '"'
    )


def test_calls_are_returned_in_the_form_of_their_tools() -> None:
    view = view_of(tools=TOOLS)
    body = view.ended(trajectory_of(view, call("", *CALLS)))
    Response.model_validate(body, strict=False)
    kinds = [(item["type"], item["name"], item.get("namespace")) for item in body["output"]]
    assert kinds == [
        ("function_call", "get_weather", None),
        ("custom_tool_call", "apply_patch", None),
        ("function_call", "spawn", "agents"),
        ("custom_tool_call", "note", "agents"),
    ]
    assert body["output"][1]["input"] == "*** Begin Patch\n°"


def test_a_response_repeats_its_tools_as_they_were_declared() -> None:
    view = view_of(tools=TOOLS)
    body = view.ended(trajectory_of(view, call("Hi")))
    weather, patch, agents = body["tools"]
    assert (weather["type"], weather["name"]) == ("function", "get_weather")
    assert patch == PATCH
    assert (agents["type"], agents["description"]) == ("namespace", "Helpers.")
    assert [tool["name"] for tool in agents["tools"]] == ["spawn", "note"]


def test_a_conversation_keeps_the_forms_of_its_calls() -> None:
    """The items that a client sends back are the messages from which they were made."""
    view = view_of(tools=TOOLS)
    items = view.ended(trajectory_of(view, call("", *CALLS)))["output"]
    outputs = [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "done"}
        for item in items
    ]
    messages = messages_of(items_of([*items, *outputs]))
    sent_back = [(c.id, c.name, c.arguments) for c in messages[0].tool_calls]
    assert sent_back == [(c.id, c.name, c.arguments) for c in CALLS]
    listed = input_items("r", messages, view.record.tool_forms)
    assert [item["type"] for item in listed] == [item["type"] for item in [*items, *outputs]]


def test_a_stream_has_the_events_of_a_custom_tool_s_input() -> None:
    view = view_of(tools=[PATCH])
    stream = ResponseStream(view)
    events = [*stream.begin(), *stream.finish(trajectory_of(view, call("", CALLS[1])))]
    for item in events:
        TypeAdapter[Any](ResponseStreamEvent).validate_python(item)
    texts = {item["type"]: item for item in events}
    assert texts["response.custom_tool_call_input.delta"]["delta"] == "*** Begin Patch\n°"
    assert texts["response.custom_tool_call_input.done"]["input"] == "*** Begin Patch\n°"
    assert texts["response.output_item.added"]["item"]["input"] == ""


def test_a_text_that_a_model_writes_without_json_is_the_custom_tool_s_input() -> None:
    written = ToolCall(
        id="c", name="apply_patch", arguments=None, raw_arguments="*** Begin", error="no JSON"
    )
    view = view_of(tools=[PATCH])
    (item,) = view.ended(trajectory_of(view, call("", written)))["output"]
    assert item["input"] == "*** Begin"


def test_a_custom_tool_can_be_required() -> None:
    choice = {"type": "custom", "name": "apply_patch"}
    request = requested(*TOOLS, tool_choice=choice)
    assert request.generation.tool_choice.name == "apply_patch"
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [choice]}
    (offered,) = requested(*TOOLS, tool_choice=allowed).options.tools
    assert offered.name == "apply_patch"


@pytest.mark.parametrize("kind", ["web_search", "file_search", "mcp", "image_generation"])
def test_a_tool_of_openai_s_servers_is_refused_with_advice(kind: str) -> None:
    error = refusal(WEATHER, {"type": kind})
    assert error.param == "tools[1]"
    assert 'web_search = "disabled"' in error.message


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({**AGENTS, "tools": []}, "tools[0].tools"),
        ({**AGENTS, "name": "a b"}, "tools[0].name"),
        ({**AGENTS, "tools": [AGENTS]}, "tools[0].tools[0]"),
        ({**AGENTS, "tools": [SPAWN, SPAWN]}, "tools"),
        ({**PATCH, "format": {"type": "grammar", "syntax": "ebnf", "definition": ""}},
         "tools[0].format.syntax"),
        ({**PATCH, "parameters": {}}, "tools[0].parameters"),
    ],
)  # fmt: skip
def test_an_invalid_tool_is_refused_by_its_path(tool: Any, param: str) -> None:
    assert refusal(tool).param == param


def test_tools_in_namespaces_count_towards_the_limit() -> None:
    many = [{**SPAWN, "name": f"t{n}"} for n in range(MAX_TOOLS)]
    assert requested({**AGENTS, "tools": many}).options.tools
    assert refusal(WEATHER, {**AGENTS, "tools": many}).param == "tools"


@given(st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z"), st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z"))
def test_a_function_s_name_is_at_most_64_characters_long(name: str, namespace: str) -> None:
    assert len(function_name(name, namespace)) <= 64


def test_long_names_that_begin_alike_are_different_functions() -> None:
    names = [function_name(f"{'x' * 60}{n}", "agents") for n in range(3)]
    assert len(set(names)) == 3
