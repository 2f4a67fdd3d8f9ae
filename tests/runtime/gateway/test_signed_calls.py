"""What an endpoint adds to a call reaches the client, and returns to the endpoint with the call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.runtime.gateway.scripted_gateway import ScriptedGateway
from tests.runtime.gateway.test_images import Endpoint, in_front_of

SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}
TOOL = {"name": "now", "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
USER: Any = {"role": "user", "content": "When?"}
ANSWER: dict[str, Any] = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "big",
    "choices": [{
        "index": 0, "finish_reason": "tool_calls",
        "message": {
            "role": "assistant", "content": None, "reasoning_content": "Look at the clock.",
            "tool_calls": [{**CALL, "extra_content": SIGNED}],
        },
    }],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}  # fmt: skip


@pytest.fixture(scope="module")
def signing() -> Iterator[tuple[ScriptedGateway, Endpoint]]:
    with in_front_of(ANSWER) as gateway_and_endpoint:
        yield gateway_and_endpoint


def extras(endpoint: Endpoint) -> list[Any]:
    """Return what the calls of the conversation have that the endpoint received last."""
    turns = endpoint.bodies[-1]["messages"]
    return [call.get("extra_content") for turn in turns for call in turn.get("tool_calls", ())]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_s_calls_return_with_their_signatures(
    signing: tuple[ScriptedGateway, Endpoint], stream: bool
) -> None:
    gateway, endpoint = signing
    chat: dict[str, Any] = {"model": "big", "tools": [{"type": "function", "function": TOOL}]}
    async with gateway.openai() as client:
        answer: Any = await client.chat.completions.create(
            messages=[USER],
            stream=stream,
            **chat,  # pyright: ignore
        )
        if stream:
            deltas = [chunk.choices[0].delta async for chunk in answer if chunk.choices]
            (calls,) = [delta.tool_calls for delta in deltas if delta.tool_calls]
        else:
            calls = answer.choices[0].message.tool_calls
        turn = {"role": "assistant", "tool_calls": [call.to_dict() for call in calls]}
        output = {"role": "tool", "tool_call_id": calls[0].id, "content": "noon"}
        await client.chat.completions.create(messages=[USER, turn, output], **chat)  # pyright: ignore
    assert extras(endpoint) == [SIGNED]


@pytest.mark.parametrize("stored", [False, True])
async def test_a_response_s_calls_return_with_their_signatures(
    signing: tuple[ScriptedGateway, Endpoint], stored: bool
) -> None:
    gateway, endpoint = signing
    options: dict[str, Any] = {"model": "big", "tools": [{"type": "function", **TOOL}]}
    async with gateway.openai() as client:
        response = await client.responses.create(input="When?", **options)
        call: Any = response.output[-1]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "noon"}
        if stored:
            options["previous_response_id"] = response.id
            await client.responses.create(input=[output], **options)  # pyright: ignore
        else:
            items = [USER, *(item.to_dict() for item in response.output), output]
            await client.responses.create(input=items, **options)  # pyright: ignore
    assert extras(endpoint) == [SIGNED]
