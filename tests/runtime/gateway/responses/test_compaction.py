"""`POST /v1/responses/compact` by OpenAI's own client: conversations continue from its output."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseCompactionItem

from loopline.agents.records import Message
from loopline.runtime.gateway.compaction import compacted
from loopline.runtime.gateway.errors import ApiError
from loopline.runtime.gateway.responses_items import items_of, messages_of

HISTORY: list[Any] = [
    {"role": "user", "content": "I am in Oslo."},
    {"role": "assistant", "content": "Hello Ada."},
    {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"role": "user", "content": "Thanks."},
]


def test_compaction_keeps_user_messages_and_replaces_the_rest_with_a_summary() -> None:
    messages = messages_of(items_of(HISTORY))
    output = compacted("run", 1, messages, "Ada is greeted; ~20 °C.", {})["output"]
    assert [item["type"] for item in output] == ["message", "message", "compaction"]
    assert messages_of(items_of([*output, {"role": "user", "content": "And now?"}])) == (
        Message(role="user", content="I am in Oslo."),
        Message(role="user", content="Thanks."),
        Message(
            role="assistant",
            content="Summary of the conversation so far:\nAda is greeted; ~20 °C.",
        ),
        Message(role="user", content="And now?"),
    )


@pytest.mark.parametrize(
    "content", ["", "gAAAAB-of-another-server", "loopline-summary-1.%%%", "loopline-summary-1._w=="]
)
def test_a_compaction_item_from_another_server_is_refused_with_advice(content: str) -> None:
    item = {"type": "compaction", "encrypted_content": content}
    with pytest.raises(ApiError, match="Send the conversation itself") as caught:
        messages_of(items_of([{"role": "user", "content": "Hello"}, item]))
    assert caught.value.param == "input[1].encrypted_content"


async def test_a_conversation_continues_from_its_compacted_items(client: AsyncOpenAI) -> None:
    short = await client.responses.compact(model="llm", input=HISTORY)
    assert short.object == "response.compaction"
    assert short.usage.output_tokens > 0
    *users, item = short.output
    assert isinstance(item, ResponseCompactionItem)
    assert len(users) == 2
    going_on: Any = [
        *(entry.model_dump(exclude_none=True, warnings=False) for entry in short.output)
    ]
    going_on.append({"role": "user", "content": "Count to nine."})
    response = await client.responses.create(model="llm", input=going_on)
    assert response.output_text == "one two three four five six seven eight nine"


async def test_a_stored_response_is_compacted_by_its_id(client: AsyncOpenAI) -> None:
    first = await client.responses.create(model="llm", input="Count to nine.")
    short = await client.responses.compact(model="llm", previous_response_id=first.id)
    assert [item.type for item in short.output] == ["message", "compaction"]
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(short.id)


async def test_a_request_that_cannot_be_compacted_is_refused_with_the_reason(
    client: AsyncOpenAI,
) -> None:
    with pytest.raises(openai.BadRequestError, match="there is no conversation to compact"):
        await client.responses.compact(model="llm")
    with pytest.raises(openai.BadRequestError, match="by a model, not by a team"):
        await client.responses.compact(model="workflow/delegate", input="Hello")
    with pytest.raises(openai.NotFoundError):
        await client.responses.compact(model="llm", previous_response_id="resp_none")


async def test_an_idempotency_key_yields_the_same_summary(client: AsyncOpenAI) -> None:
    key = {"Idempotency-Key": "compact-once"}
    first, second = await asyncio.gather(
        *(client.responses.compact(model="llm", input=HISTORY, extra_headers=key) for _ in "12")
    )
    assert first == second
