"""Calls that an endpoint signs, and wants back with their signatures, as Gemini 3 does.

continuedev/continue#8865, Gitlawb/openclaude#76, 0xsline/OpenChatCut#6.
"""

from __future__ import annotations

from typing import Any

import pytest

from loopline.workers.engines.openai.wire import UNSIGNED
from tests.workers.engines.test_endpoint_shapes import outcome_of, serving
from tests.workers.engines.test_further_shapes import ANSWER, turns

SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}
CALL = {
    "id": "call_1", "type": "function", "extra_content": SIGNED,
    "function": {"name": "now", "arguments": "{}"},
}  # fmt: skip
MISSING = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools"
    " to work correctly, and missing thought_signature may lead to degraded model performance."
)
REFUSAL: dict[str, Any] = {
    "status": 400,
    "body": [{"error": {"code": 400, "message": MISSING, "status": "INVALID_ARGUMENT"}}],
}


def conversation(**fields: Any) -> list[dict[str, Any]]:
    calls = [["call_1", "now", {}], ["call_2", "now", {}]]
    return turns(
        {"role": "assistant", "content": "", "tool_calls": calls, **fields},
        {"role": "tool", "content": "noon", "tool_call_id": "call_1"},
        {"role": "tool", "content": "noon", "tool_call_id": "call_2"},
    )


def extras(body: dict[str, Any]) -> list[Any]:
    return [call.get("extra_content") for call in body["messages"][1]["tool_calls"]]


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_signature_of_a_call_is_read(streamed: bool) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "index": 0}]}
    choice = {
        "index": 0,
        "delta" if streamed else "message": message,
        "finish_reason": "tool_calls",
    }
    answer = {"choices": [choice], "usage": {"prompt_tokens": 2, "completion_tokens": 1}}
    case: dict[str, Any] = {"request": {"tools": ["now"]}}
    case |= {"sse": [answer]} if streamed else {"body": answer}
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    (call,) = outcome.completions[0].tool_calls
    assert call.extra_content == SIGNED


async def test_a_call_is_sent_with_its_signature() -> None:
    case = {"body": ANSWER, "request": {"messages": conversation(extra_content=SIGNED)}}
    async with serving(case) as server:
        await outcome_of(case, server)
    assert extras(server.arrived[0].body) == [SIGNED, SIGNED]


async def test_a_call_without_a_signature_is_sent_as_unsigned_where_one_is_required() -> None:
    case = {"answers": [REFUSAL, {"body": ANSWER}], "request": {"messages": conversation()}}
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    assert outcome.completions[0].text == "Noon."
    assert [extras(request.body) for request in server.arrived] == [[None, None], [UNSIGNED, None]]


async def test_signatures_are_left_out_after_another_endpoint_s_refusal() -> None:
    message = "Unknown parameter: 'messages[1].tool_calls[0].extra_content'."
    refusal = {"status": 400, "body": {"error": {"message": message}}}
    case = {
        "answers": [refusal, {"body": ANSWER}],
        "request": {"messages": conversation(extra_content=SIGNED)},
    }
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    assert outcome.completions[0].text == "Noon."
    assert extras(server.arrived[1].body) == [None, None]


async def test_the_thoughts_of_a_turn_are_sent_where_they_are_required() -> None:
    message = "The `reasoning_content` in the thinking mode must be passed back to the API."
    case: dict[str, Any] = {
        "answers": [{"status": 400, "body": {"error": {"message": message}}}, {"body": ANSWER}],
        "request": {"messages": conversation(thought="Look at the clock.")},
    }
    async with serving(case) as server:
        outcome = await outcome_of(case, server)
    assert outcome.completions[0].text == "Noon."
    sent = [request.body["messages"][1].get("reasoning_content") for request in server.arrived]
    assert sent == [None, "Look at the clock."]
