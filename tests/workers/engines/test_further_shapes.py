"""More server answers from public reports, and the openai engine's reading of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.workers.engines.test_endpoint_shapes import differences, outcome_of, serving

USAGE = {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26}
ARGUMENTS = '{"expression": "6*7"}'
RIGHT = {"tool_calls": [["calculate", {"expression": "6*7"}]], "finish": "tool_calls"}


def calls(*entries: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": "", "tool_calls": list(entries)}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {
        "request": {"tools": ["calculate", "now"]},
        "body": {"choices": [choice], "usage": USAGE},
        "right": RIGHT,
    }


def named(name: str) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": ARGUMENTS}}


def refused(message: str) -> dict[str, Any]:
    body = {"error": {"message": message}}
    return {"status": 400, "body": body, "right": {"error_kind": "context_overflow", "requests": 1}}


BROKEN = {"error": {"code": 502, "message": "upstream fell over"}, "finish_reason": "error"}
CASES: dict[str, dict[str, Any]] = {
    "Kimi's name of a call": calls(named("functions.calculate:0")),
    "the namespace of gpt-oss": calls(named("functions.calculate")),
    "gpt-oss's tokens behind a name": calls(named("calculate<|channel|>commentary")),
    "blanks around a name": calls(named(" calculate\n")),
    "Cohere's parameters": calls(
        {"id": "c", "function": {"name": "calculate", "parameters": {"expression": "6*7"}}}
    ),
    "Anthropic's input": calls(
        {"id": "c", "type": "tool_use", "name": "calculate", "input": {"expression": "6*7"}}
    ),
    "arguments in a string of JSON": calls(
        {"id": "c", "function": {"name": "calculate", "arguments": json.dumps(ARGUMENTS)}}
    ),
    "OpenRouter's error within a choice": {
        "body": {"choices": [{"index": 0, "message": {"content": ""}, **BROKEN}], "usage": USAGE},
        "right": {"error_contains": ["upstream fell over"], "retryable": True},
    },
    "OpenRouter's error within a stream's choice": {
        "sse": [{"choices": [{"index": 0, "delta": {"content": ""}, **BROKEN}]}],
        "right": {"error_contains": ["upstream fell over"], "retryable": True},
    },
    "a prompt that is too long, in Databricks' words": refused(
        "tokens in request more than max tokens allowed"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_reported_shape_is_read_correctly(case: dict[str, Any]) -> None:
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    assert differences(case["right"], outcome, server) == []


async def test_a_name_that_matches_no_offered_tool_stays_unchanged() -> None:
    case = calls(named("functions.other:0"))
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    assert outcome.completions[0].tool_calls[0].name == "functions.other:0"


ANSWER = {
    "choices": [{"index": 0, "message": {"content": "Noon."}, "finish_reason": "stop"}],
    "usage": USAGE,
}


def turns(*more: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "When?"}, *more]


async def test_nine_letter_call_ids_are_sent_after_mistral_s_refusal() -> None:
    """jackmpcollins/magentic#276: ids of another model's calls go to Mistral's endpoint."""
    message = "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."
    case: dict[str, Any] = {
        "answers": [{"status": 400, "body": {"object": "error", "message": message}},
                    {"body": ANSWER}],
        "request": {"messages": turns(
            {"role": "assistant", "content": "", "tool_calls": [["call_1", "now", {}]]},
            {"role": "tool", "content": "noon", "tool_call_id": "call_1"},
        )},
    }  # fmt: skip
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    assert outcome.completions[0].text == "Noon."
    _, asking, answering = server.arrived[1].body["messages"]
    assert asking["tool_calls"][0]["id"] == answering["tool_call_id"]
    assert len(answering["tool_call_id"]) == 9


async def test_a_system_turn_moves_to_the_front_where_a_server_requires_it() -> None:
    """vllm-project/vllm#41114, ggml-org/llama.cpp#27367."""
    message = "Jinja Exception: System message must be at the beginning."
    case: dict[str, Any] = {
        "answers": [{"status": 500, "body": {"error": {"code": 500, "message": message}}},
                    {"body": ANSWER}],
        "request": {"messages": turns({"role": "system", "content": "In French."})},
    }  # fmt: skip
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    assert outcome.completions[0].text == "Noon."
    assert [turn["role"] for turn in server.arrived[1].body["messages"]] == ["system", "user"]
