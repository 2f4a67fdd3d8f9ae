"""The fields that a request may set, and the conversation that its items form."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import Response

from loopline.agents.records import Message, ToolChoice
from loopline.runtime.gateway.errors import ApiError, validated
from loopline.runtime.gateway.responses_items import (
    check_calls,
    items_of,
    messages_of,
    outputs_after_calls,
)
from loopline.runtime.gateway.responses_request import ResponseRequest
from tests.runtime.gateway.responses.conftest import WEATHER
from tests.runtime.gateway.responses.runs import call, trajectory_of, view_of

CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "5"}


def conversation(*items: Any) -> tuple[Message, ...]:
    messages = outputs_after_calls(messages_of(items_of(list(items))))
    check_calls(messages)
    return messages


def refusal(*items: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        conversation(*items)
    return caught.value


def allowed(*names: str, mode: str = "auto") -> dict[str, Any]:
    tools = [{"type": "function", "name": name} for name in names]
    return {"type": "allowed_tools", "mode": mode, "tools": tools}


def parse_error(**body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        validated(ResponseRequest, {"model": "llm", "input": "Go.", **body})
    return caught.value


def test_a_text_becomes_one_user_message() -> None:
    assert messages_of(items_of("Hi")) == (Message(role="user", content="Hi"),)


def test_text_parts_are_joined_and_a_developer_message_becomes_a_system_message() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert conversation({"role": "developer", "content": parts}) == (
        Message(role="system", content="a\nb"),
    )


def test_a_message_and_the_calls_after_it_form_one_assistant_turn() -> None:
    message = {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Wait.", "annotations": [], "logprobs": []}],
    }
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}
    turn, answer = conversation(thought, message, CALL, OUTPUT)
    assert (turn.content, turn.tool_calls[0].arguments) == ("Wait.", {"a": 1})
    assert (answer.role, answer.content, answer.tool_call_id) == ("tool", "5", "c1")


def test_thoughts_belong_to_the_turn_after_them() -> None:
    def thought(text: str) -> dict[str, Any]:
        content = [{"type": "reasoning_text", "text": text}, "other"]
        return {"type": "reasoning", "summary": [], "content": content}

    message = {"role": "assistant", "content": "Wait."}
    turn, _, last = conversation(
        thought("One."), message, thought("Two."), CALL, OUTPUT, thought("Three."), message
    )
    assert (turn.thought, turn.content, len(turn.tool_calls)) == ("One.\n\nTwo.", "Wait.", 1)
    assert (last.thought, last.content) == ("Three.", "Wait.")


def test_null_in_fields_of_an_item_is_unset() -> None:
    item = {"type": None, "id": None, "status": None, "role": "user", "content": "Hi"}
    image = {"type": "input_image", "image_url": "https://x", "detail": None, "other": None}
    message, picture = conversation(item, {"role": "user", "content": [image]})
    assert message == Message(role="user", content="Hi")
    assert picture.parts[0].url == "https://x"


def test_consecutive_calls_form_one_turn() -> None:
    second = {**CALL, "call_id": "c2"}
    turn, *answers = conversation(CALL, second, OUTPUT, {**OUTPUT, "call_id": "c2"})
    assert [tool_call.id for tool_call in turn.tool_calls] == ["c1", "c2"]
    assert len(answers) == 2


# deepseek-ai/DeepSeek-V3#1588, livekit/agents#1977
@pytest.mark.parametrize("role", ["user", "developer", "assistant"])
def test_an_output_belongs_to_its_call_wherever_it_is(role: str) -> None:
    between = {"role": role, "content": "Meanwhile."}
    second, answer = {**CALL, "call_id": "c2"}, {**OUTPUT, "call_id": "c2"}
    messages = conversation(between, CALL, second, between, between, answer, OUTPUT)
    calls = [message.tool_call_id for message in messages if message.role == "tool"]
    begin = next(place for place, message in enumerate(messages) if message.tool_calls)
    assert [message.role for message in messages[begin + 1 : begin + 3]] == ["tool", "tool"]
    assert (calls, messages[-1].content) == (["c2", "c1"], "Meanwhile.")


def test_arguments_that_are_not_json_are_kept_verbatim() -> None:
    turn, _ = conversation({**CALL, "arguments": "{"}, OUTPUT)
    assert (turn.tool_calls[0].arguments, turn.tool_calls[0].raw_arguments) == (None, "{")


@pytest.mark.parametrize(
    ("items", "param", "message"),
    [
        ([OUTPUT], "input", "No tool call found for function call output with call_id c1"),
        ([CALL], "input", "No tool output found for function call c1"),
        ([CALL, {"role": "user", "content": "x"}], "input", "No tool output found"),
        ([CALL, OUTPUT, OUTPUT], "input", "No tool call found"),
        (["text"], "input[0]", "an item is an object"),
        ([{"role": "user", "content": ["Hi"]}], "input[0].content[0]", "a part is an object"),
        ([{"type": "web_search_call"}], "input[0].type", "web_search_call"),
        ([{"type": ["message"]}], "input[0].type", "is not accepted here"),
        ([{"role": "user"}], "input[0].content", "Missing required parameter"),
        ([{"role": "robot", "content": "x"}], "input[0].role", "Invalid value"),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
            "input[0].content[0].image_url",
            "must begin with https://",
        ),
        (
            [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}],
            "input[0].content[0]",
            "input_file",
        ),
        (
            [{"role": "system", "content": [{"type": "input_image", "image_url": "https://x"}]}],
            "input[0].content[0]",
            "only a user sends images",
        ),
        (
            [CALL, {**OUTPUT, "output": [{"type": "input_image", "image_url": "https://x"}]}],
            "input[1].output[0]",
            "role 'tool' takes only text",
        ),
        (
            [{"role": "user", "content": [{"type": "input_text"}]}],
            "input[0].content[0].text",
            "Missing required parameter",
        ),
        ([{**CALL, "call_id": ""}, OUTPUT], "input[0].call_id", "Invalid value"),
    ],
)
def test_an_invalid_item_is_refused_with_its_path(items: Any, param: str, message: str) -> None:
    error = refusal(*items)
    assert (error.status, error.param) == (400, param)
    assert message in error.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"conversation": "conv_1"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"reasoning": {"effort": 5}}, "reasoning.effort"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"text": {"verbosity": "brief"}}, "text.verbosity"),
        ({"max_tool_calls": 3}, "max_tool_calls"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"nonsense": 1}, "nonsense"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"input": []}, "input"),
        ({"temperature": 3}, "temperature"),
        ({"background": True, "store": False}, "store"),
        ({"tool_choice": {"type": "function", "name": "absent"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": allowed("get_weather", "absent")}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": allowed()}, "tool_choice.tools"),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
    ],
)
def test_an_unsupported_or_invalid_field_is_refused_by_name(body: Any, param: str) -> None:
    error = parse_error(**body)
    assert (error.status, error.param) == (400, param)


def test_how_much_to_think_reaches_the_model_and_is_repeated() -> None:
    fields: dict[str, Any] = {"reasoning": {"effort": "high"}}
    request = validated(ResponseRequest, {"model": "llm", "input": "Go.", **fields})
    assert request.generation.reasoning_effort == "high"
    view = view_of(**fields)
    body = view.ended(trajectory_of(view, call("Hi")))
    assert body["reasoning"] == {"effort": "high", "summary": None}


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_the_allowed_tools_are_offered_to_the_model(mode: str) -> None:
    choice = allowed("get_weather", mode=mode)
    fields: dict[str, Any] = {"tools": [WEATHER, {**WEATHER, "name": "now"}], "tool_choice": choice}
    body = {"model": "llm", "input": "Go.", **fields}
    request = validated(ResponseRequest, body)
    assert [tool.name for tool in request.options.tools] == ["get_weather"]
    assert request.generation.tool_choice == ToolChoice.model_validate({"mode": mode})
    view = view_of(**fields)
    body = view.ended(trajectory_of(view, call("Hi")))
    Response.model_validate(body, strict=False)
    assert body["tool_choice"] == choice


def test_a_response_repeats_the_fields_of_its_request() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}
    output = {"type": "json_schema", "name": "point", "schema": schema, "strict": True}
    view = view_of(
        tools=[{**WEATHER, "strict": False}],
        tool_choice={"type": "function", "name": "get_weather"},
        parallel_tool_calls=False,
        text={"format": output},
        max_output_tokens=9,
        user="ada",
    )
    body = view.ended(trajectory_of(view, call('{"x": 1}')))
    Response.model_validate(body, strict=False)
    assert body["tools"] == [{**WEATHER, "strict": False}]
    assert body["tool_choice"] == {"type": "function", "name": "get_weather"}
    assert body["text"]["format"] == {**output, "description": None}
    assert (body["max_output_tokens"], body["user"]) == (9, "ada")
    assert body["parallel_tool_calls"] is False


def test_a_response_reports_its_temperature_and_usage() -> None:
    view = view_of()
    body = view.ended(trajectory_of(view, call("Hi")))
    assert body["temperature"] == 0.5
    assert body["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 12,
    }
