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


def streamed(*pieces: str) -> dict[str, Any]:
    """A call whose arguments come in pieces."""
    first, *others = [{"index": 0.0, "function": {"arguments": arguments}} for arguments in pieces]
    first |= {"id": "c", "function": {"name": "calculate", "arguments": pieces[0]}}
    chunks = [{"index": 0, "delta": {"tool_calls": [piece]}} for piece in (first, *others)]
    end = {"index": 0.0, "delta": {}, "finish_reason": "tool_calls"}
    return {
        "request": {"tools": ["calculate", "now"]},
        "sse": [*({"choices": [chunk]} for chunk in chunks), {"choices": [end], "usage": USAGE}],
        "right": RIGHT,
    }


def answered(right: dict[str, Any], finish: str = "stop", **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"content": "42.", **fields}, "finish_reason": finish}
    return {"body": {"choices": [choice], "usage": USAGE}, "right": right}


def choices(*entries: dict[str, Any], right: dict[str, Any], n: int = 1) -> dict[str, Any]:
    ended = [{**entry, "finish_reason": "stop"} for entry in entries]
    return {
        "request": {"tools": ["calculate", "now"], "n": n},
        "body": {"choices": ended, "usage": USAGE},
        "right": {**right, "requests": 1},
    }


def ended_by_message(message: dict[str, Any]) -> dict[str, Any]:
    """A stream of two pieces, whose last chunk has the whole message."""
    pieces = [{"content": "It is "}, {"content": "42."}]
    if thought := message.get("reasoning_content"):
        pieces.insert(0, {"reasoning_content": thought})
    chunks = [{"choices": [{"index": 0, "delta": piece}]} for piece in pieces]
    last = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"sse": [*chunks, {"choices": [last], "usage": USAGE}], "right": {"text": "It is 42."}}


def within_reasoning(thought: str, right: dict[str, Any]) -> dict[str, Any]:
    case = answered(right, content=None, reasoning=thought)
    return {**case, "request": {"tools": ["calculate", "now"]}}


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
    # HKUDS/nanobot#1481, ericc-ch/copilot-api#81
    "GitHub Copilot's text and call in two choices": choices(
        {"message": {"content": "I compute."}},
        {"message": {"tool_calls": [named("calculate")]}},
        right={**RIGHT, "text": "I compute."},
    ),
    "two completions with the same index": choices(
        {"index": 0, "message": {"content": "One."}},
        {"index": 0, "message": {"content": "Two."}},
        right={"completions": 2, "text": "One."},
        n=2,
    ),
    # BerriAI/litellm#4537, openai/openai-agents-js#712
    "Anthropic's empty input before a streamed call's arguments": streamed(
        "{}", '{"expression": ', '"6*7"}'
    ),
    "indexes as floats": streamed(ARGUMENTS),
    # agno-agi/agno#8880
    "the second call begins at the first one's index": {
        "request": {"tools": ["calculate", "now"]},
        "sse": [
            *(
                {"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]}
                for piece in (
                    {"index": 0, "id": "c", "function": {"name": "now", "arguments": ""}},
                    {"index": 0, "function": {"arguments": "{}"}},
                    {"index": 0, "id": "d", "function": {"name": "calculate", "arguments": ""}},
                    {"index": 1, "function": {"arguments": '{"expression": '}},
                    {"index": 1, "function": {"arguments": '"6*7"}'}},
                )
            ),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": USAGE},
        ],
        "right": {"tool_calls": [["now", {}], *RIGHT["tool_calls"]]},
    },
    "Anthropic's count of a prompt that a cache has and gets": {
        **answered({"usage": {"prompt": 103, "cached": 50, "completion": 5, "reasoning": 0}}),
        "body": {
            "choices": [{"index": 0, "message": {"content": "42."}, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": 3,
                "completion_tokens": 5,
                "total_tokens": 108,
                "cache_read_input_tokens": 50,
                "cache_creation_input_tokens": 50,
            },
        },
    },
    "Mistral's reference between two texts": answered(
        {"text": "42."},
        content=[
            {"type": "text", "text": "4"},
            {"type": "reference", "reference_ids": [0]},
            {"type": "text", "text": "2."},
        ],
    ),
    "Gemini's malformed call": answered(
        {"error_contains": ["MALFORMED"], "retryable": True},
        finish="function_call_filter: MALFORMED_FUNCTION_CALL",
        content="",
    ),
    "new-api's cached tokens, in DeepSeek's field only": {
        "body": {
            "choices": answered({})["body"]["choices"],
            "usage": USAGE
            | {"prompt_cache_hit_tokens": 4, "prompt_tokens_details": {"cached_tokens": 0}},
        },
        "right": {"usage": {"prompt": 20, "cached": 4, "completion": 6}},
    },
    # abundantbeing/hermes-browser-extension#11, ENTERPILOT/GoModel#1068
    "MiniMax's whole message at the end of a stream": ended_by_message({"content": "It is 42."}),
    "the same with reasoning": ended_by_message(
        {"content": "It is 42.", "reasoning_content": "Six times seven."}
    ),
    "a call only in the whole message": {
        "request": {"tools": ["calculate", "now"]},
        "sse": [
            {"choices": [{"index": 0, "delta": {"content": "So:"}}]},
            {
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "tool_calls",
                        "message": {"content": "So:", "tool_calls": [named("calculate")]},
                    }
                ],
                "usage": USAGE,
            },
        ],
        "right": {**RIGHT, "text": "So:"},
    },
    # vllm-project/vllm-ascend#8042, vllm-project/vllm#42021
    "a call within the reasoning": within_reasoning(
        f'So.\n<tool_call>\n{{"name": "calculate", "arguments": {ARGUMENTS}}}\n</tool_call>', RIGHT
    ),
    "a call that the reasoning only mentions": within_reasoning(
        "I might write <tool_call>{}</tool_call>, or not.", {"tool_calls": [], "finish": "stop"}
    ),
    "a call that the server has lost": {
        "request": {"tools": ["calculate", "now"]},
        "answers": [answered({}, finish="tool_calls", content=None), calls(named("calculate"))],
        "right": {**RIGHT, "requests": 2},
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


async def test_half_a_surrogate_pair_in_the_reasoning_fits_into_a_record() -> None:
    halves = [{"choices": [{"index": 0, "delta": {"reasoning": half}}]} for half in "\ud83d\ude00"]
    end = {"index": 0, "delta": {"content": "42."}, "finish_reason": "stop"}
    case = {"sse": [*halves, {"choices": [end], "usage": USAGE}]}
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    assert outcome.completions[0].reasoning == "😀"
    outcome.completions[0].model_dump_json()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reasoning_text", "I think."),
        ("thinking_blocks", [{"type": "thinking", "thinking": "I think.", "signature": "s"}]),
    ],
)
async def test_reasoning_is_read_under_every_server_s_name(name: str, value: Any) -> None:
    """GitHub Copilot's, LiteLLM's."""
    async with serving(answered({}, **{name: value})) as server:
        outcome = await outcome_of({}, server)
    assert outcome.completions[0].reasoning == "I think."


async def test_a_message_that_repeats_its_stream_adds_no_reasoning() -> None:
    case = ended_by_message({"content": "It is 42.", "reasoning_content": "Six times seven."})
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    assert outcome.completions[0].reasoning == "Six times seven."


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


async def test_call_ids_are_shortened_after_openai_s_refusal() -> None:
    """vercel/ai#8132, Portkey-AI/gateway#1062: another server's ids have over 40 characters."""
    message = "Invalid 'messages[1].tool_calls[0].id': string too long."
    name = "call_" + "a" * 60
    case: dict[str, Any] = {
        "answers": [{"status": 400, "body": {"error": {"message": message}}}, {"body": ANSWER}],
        "request": {"messages": turns(
            {"role": "assistant", "content": "", "tool_calls": [[name, "now", {}]]},
            {"role": "tool", "content": "noon", "tool_call_id": name},
        )},
    }  # fmt: skip
    async with serving(case) as server:
        await outcome_of(case, server)
    _, asking, answering = server.arrived[1].body["messages"]
    assert asking["tool_calls"][0]["id"] == answering["tool_call_id"]
    assert len(answering["tool_call_id"]) <= 40


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


# theopenco/llmgateway#2093, earendil-works/pi#3636, agentscope-ai/QwenPaw#4314
@pytest.mark.parametrize(
    "error",
    [
        {"message": "thinking is enabled but reasoning_content is missing in assistant tool call "
         "message at index 1"},
        {"message": "The `reasoning_content` in the thinking mode must be passed back to the API."},
        {"message": "Param Incorrect", "code": "400",
         "param": "The reasoning_content in the thinking mode must be passed back to the API."},
        {"message": "Missing `reasoning_content` field in the assistant message at index 1."},
    ],
)  # fmt: skip
async def test_turns_have_thoughts_where_a_server_requires_them(error: dict[str, str]) -> None:
    case: dict[str, Any] = {
        "answers": [{"status": 400, "body": {"error": error}}, {"body": ANSWER}],
        "request": {"messages": turns(
            {"role": "assistant", "content": "", "tool_calls": [["call_1", "now", {}]]},
            {"role": "tool", "content": "noon", "tool_call_id": "call_1"},
            {"role": "assistant", "content": "<think>Lunch?</think>It is noon."},
            {"role": "user", "content": "Again."},
        )},
    }  # fmt: skip
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    assert outcome.completions[0].text == "Noon."
    thoughts = [turn.get("reasoning_content") for turn in server.arrived[1].body["messages"]]
    assert thoughts == [None, " ", None, "Lunch?", None]
    assert "reasoning_content" not in str(server.arrived[0].body)


async def test_a_tool_s_empty_text_is_not_sent_where_a_server_refuses_it() -> None:
    """quailyquaily/mistermorph#46."""
    error = {"error": {"message": "messages.content must not be empty"}}
    case: dict[str, Any] = {
        "answers": [{"status": 400, "body": error}, {"body": ANSWER}],
        "request": {"messages": turns(
            {"role": "assistant", "content": "I look.", "tool_calls": [["call_1", "now", {}]]},
            {"role": "tool", "content": "", "tool_call_id": "call_1"},
        )},
    }  # fmt: skip
    async with serving(case) as server:
        await outcome_of(case, server)
    contents = [
        [turn["content"] for turn in request.body["messages"]] for request in server.arrived
    ]
    assert contents == [["When?", "I look.", ""], ["When?", "I look.", "(no output)"]]
