"""OpenAI's own client, unmodified, against a running gateway."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseCustomToolCall, ResponseFunctionToolCall
from pydantic import BaseModel

from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import load_resolved_file
from tests.runtime.gateway.responses.conftest import WEATHER, all_events
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

NINE = "one two three four five six seven eight nine"


class Point(BaseModel):
    x: int
    y: int


async def ended(client: AsyncOpenAI, response_id: str) -> Any:
    async with asyncio.timeout(60):
        while True:
            response = await client.responses.retrieve(response_id)
            if response.status not in ("queued", "in_progress"):
                return response
            await asyncio.sleep(0.05)


async def steps_calls(gateway: ScriptedGateway, response_id: str) -> Any:
    settings = load_resolved_file(gateway.state.resolved)
    async with Client.connect(settings.bus) as bus:
        trajectory = await bus.trajectory(response_id.removeprefix("resp_"))
        return trajectory.steps[0].calls[0]


async def test_a_text_is_answered(client: AsyncOpenAI) -> None:
    response = await client.responses.create(
        model="llm", input="Count to nine.", metadata={"who": "ada"}
    )
    assert (response.status, response.output_text) == ("completed", NINE)
    assert response.metadata == {"who": "ada"}
    assert response.usage is not None
    assert response.usage.output_tokens > 0


async def test_reasoning_is_a_separate_output_item(client: AsyncOpenAI) -> None:
    response = await client.responses.create(model="llm", input="Think of a number.")
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output_text == "7"


async def test_the_deltas_of_a_stream_add_up_to_the_answer(client: AsyncOpenAI) -> None:
    async with client.responses.stream(model="llm", input="Count to nine.") as stream:
        pieces = [e.delta async for e in stream if e.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert "".join(pieces) == final.output_text == NINE


async def test_a_text_is_parsed_into_a_model(client: AsyncOpenAI) -> None:
    response = await client.responses.parse(
        model="llm", input="Give me a point.", text_format=Point
    )
    assert response.output_parsed == Point(x=3, y=4)


async def test_the_model_calls_a_tool_and_answers_with_its_output(client: AsyncOpenAI) -> None:
    tools: Any = [WEATHER]
    messages: list[Any] = [{"role": "user", "content": "What is the weather?"}]
    first: Any = await client.responses.create(model="llm", input=messages, tools=tools)
    (call,) = [item for item in first.output if isinstance(item, ResponseFunctionToolCall)]
    assert (call.name, call.arguments) == (
        "get_weather",
        '{"location": "San Francisco, CA"}',
    )
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "18 °C"}
    by_items = await client.responses.create(
        model="llm", input=[*messages, *first.output, output], tools=tools
    )
    by_id = await client.responses.create(
        model="llm", input=[output], previous_response_id=first.id, tools=tools
    )
    assert by_items.output_text == by_id.output_text == "It has 18 °C there."


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_custom_tool_s_call_keeps_its_form_in_the_conversation(
    client: AsyncOpenAI, *, by_id: bool
) -> None:
    edit: Any = {"type": "custom", "name": "edit"}
    question: Any = {"role": "user", "content": "Edit it."}
    first: Any = await client.responses.create(
        model="llm", input=[question], tools=[edit], tool_choice=edit
    )
    (call,) = [item for item in first.output if isinstance(item, ResponseCustomToolCall)]
    output: Any = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Done."}
    before: list[Any] = [] if by_id else [question, call]
    second = await client.responses.create(
        model="llm",
        input=[*before, output],
        previous_response_id=first.id if by_id else openai.omit,
    )
    items = (await client.responses.input_items.list(second.id, order="asc")).data
    kinds = [item.type for item in items]
    assert kinds[-2:] == ["custom_tool_call", "custom_tool_call_output"]


async def test_a_chain_of_responses_is_one_conversation_tokenized_once(
    client: AsyncOpenAI, gateway: ScriptedGateway
) -> None:
    texts: list[str] = []
    last: str | None = None
    calls: list[Any] = []
    for text in ("My name is Ada.", "What is my name?", "And backwards?"):
        response = await client.responses.create(model="llm", input=text, previous_response_id=last)
        assert response.previous_response_id == last
        last = response.id
        texts.append(response.output_text)
        calls.append(await steps_calls(gateway, last))
    assert texts == ["Hello Ada.", "Your name is Ada.", "adA"]
    assert [call.extends_previous for call in calls] == [False, True, True]
    for earlier, later in itertools.pairwise(calls):
        ids = (*earlier.prompt_ids, *earlier.output_ids)
        assert later.prompt_ids[: len(ids)] == ids


async def test_instructions_are_not_carried_over(client: AsyncOpenAI) -> None:
    first = await client.responses.create(
        model="llm", instructions="Reply with the letter R.", input="Who am I?"
    )
    second = await client.responses.create(
        model="llm", input="My name is Ada.", previous_response_id=first.id
    )
    assert (first.output_text, second.output_text) == ("R", "Hello Ada.")
    assert (first.instructions, second.instructions) == ("Reply with the letter R.", None)


async def test_the_responses_of_a_session_extend_each_other(
    client: AsyncOpenAI, gateway: ScriptedGateway
) -> None:
    url = gateway.url.removesuffix("/v1") + "/sessions/chain/v1"
    async with AsyncOpenAI(base_url=url, api_key=gateway.key) as session:
        first = await session.responses.create(model="llm", input="My name is Ada.")
        messages: Any = [
            {"role": "user", "content": "My name is Ada."},
            *first.output,
            {"role": "user", "content": "What is my name?"},
        ]
        second = await session.responses.create(model="llm", input=messages)
    assert second.output_text == "Your name is Ada."
    assert (await steps_calls(gateway, second.id)).extends_previous


async def test_an_unknown_previous_response_is_not_found(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.responses.create(model="llm", input="x", previous_response_id="resp_none")
    assert caught.value.code == "previous_response_not_found"


async def test_other_callers_cannot_access_a_response(
    client: AsyncOpenAI, gateway: ScriptedGateway
) -> None:
    mine = await client.responses.create(model="llm", input="Count to nine.")
    async with gateway.openai(gateway.new_key("other")["key"]) as other:
        for request in (
            other.responses.retrieve(mine.id),
            other.responses.cancel(mine.id),
            other.responses.input_items.list(mine.id),
            other.responses.create(model="llm", input="x", previous_response_id=mine.id),
            other.responses.create(
                model="llm", input=[{"type": "item_reference", "id": mine.output[0].id or ""}]
            ),
        ):
            with pytest.raises(openai.NotFoundError):
                await request


async def test_a_deleted_response_cannot_be_accessed_again(
    client: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    other = await client.responses.create(model="llm", input="Count to nine.")
    gone = await client.responses.create(model="llm", input="Count to nine.")
    answer = (await http.delete(f"responses/{gone.id}")).json()
    assert answer == {"id": gone.id, "object": "response", "deleted": True}
    for request in (
        client.responses.retrieve(gone.id),
        client.responses.delete(gone.id),
        client.responses.input_items.list(gone.id),
        client.responses.create(model="llm", input="x", previous_response_id=gone.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await request
    completion = gone.id.replace("resp_", "chatcmpl-")
    assert (await http.get(f"chat/completions/{completion}")).status_code == 404
    assert (await client.responses.retrieve(other.id)).id == other.id


async def test_deleting_a_response_cancels_its_run(
    client: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    asleep = await client.responses.create(model="asleep", input="x", background=True)
    await client.responses.delete(asleep.id)
    run = (await http.get(f"runs/{asleep.id.removeprefix('resp_')}")).json()
    assert run["status"] == "cancelled"


async def test_a_response_that_is_not_stored_cannot_be_retrieved_or_continued(
    client: AsyncOpenAI,
) -> None:
    response = await client.responses.create(model="llm", input="Count to nine.", store=False)
    assert response.to_dict()["store"] is False
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="llm", input="x", previous_response_id=response.id)


async def test_a_retrieved_response_equals_the_original(client: AsyncOpenAI) -> None:
    response = await client.responses.create(model="llm", input="Count to nine.", tools=[])
    assert await client.responses.retrieve(response.id) == response


async def test_input_items_list_the_conversation_and_can_be_referenced(
    client: AsyncOpenAI,
) -> None:
    first = await client.responses.create(
        model="llm", instructions="Be short.", input="My name is Ada."
    )
    page = await client.responses.input_items.list(first.id, order="asc")
    (item,) = page.data
    assert item.type == "message"
    assert item.content[0].text == "My name is Ada."  # pyright: ignore
    second = await client.responses.create(
        model="llm",
        input=[
            {"type": "item_reference", "id": item.id or ""},
            {"type": "item_reference", "id": first.output[0].id or ""},
            {"role": "user", "content": "What is my name?"},
        ],
    )
    assert second.output_text == "Your name is Ada."
    listed = [item async for item in client.responses.input_items.list(second.id, limit=1)]
    assert [item.type for item in listed] == ["message"] * 3


async def test_a_background_response_can_be_retrieved_once_it_is_complete(
    client: AsyncOpenAI,
) -> None:
    response = await client.responses.create(model="slow", input="Count to nine.", background=True)
    assert response.status in ("queued", "in_progress")
    whole = await ended(client, response.id)
    assert whole.status == "completed"
    assert whole.output_text.startswith(NINE)
    assert whole.background is True


async def test_a_response_in_progress_can_be_cancelled_but_not_continued(
    client: AsyncOpenAI,
) -> None:
    response = await client.responses.create(model="asleep", input="Go.", background=True)
    with pytest.raises(openai.BadRequestError, match="not completed yet"):
        await client.responses.create(model="llm", input="x", previous_response_id=response.id)
    cancelled = await client.responses.cancel(response.id)
    assert cancelled.status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="no answer"):
        await client.responses.create(model="llm", input="x", previous_response_id=response.id)


async def test_a_background_run_continues_after_its_client_leaves_the_stream(
    client: AsyncOpenAI,
) -> None:
    stream = await client.responses.create(
        model="slow", input="Count to nine.", background=True, stream=True
    )
    events: list[Any] = []
    async for event in stream:
        events.append(event)
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    response_id = events[0].response.id
    rest = await client.responses.retrieve(
        response_id, stream=True, starting_after=events[-1].sequence_number
    )
    events += [event async for event in rest]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == events[-1].response.output_text
    assert events[-1].response.status == "completed"


async def test_a_run_is_cancelled_when_its_only_client_leaves_the_stream(
    client: AsyncOpenAI,
) -> None:
    stream = await client.responses.create(model="asleep", input="Go.", stream=True)
    first: Any = await anext(aiter(stream))
    await stream.close()
    assert (await ended(client, first.response.id)).status == "cancelled"


async def test_an_idempotency_key_yields_one_response(client: AsyncOpenAI) -> None:
    headers = {"idempotency-key": "once"}
    first, second = await asyncio.gather(
        *(
            client.responses.create(model="llm", input="Count to nine.", extra_headers=headers)
            for _ in range(2)
        )
    )
    assert first == second
    with pytest.raises(openai.ConflictError):
        await client.responses.create(model="llm", input="Other.", extra_headers=headers)


async def test_a_stream_replays_the_same_events_from_any_position(
    http: httpx.AsyncClient,
) -> None:
    body = {"model": "llm", "input": "Count to nine.", "stream": True}
    events = await all_events(http, "POST", "responses", json=body)
    path = f"responses/{events[0]['response']['id']}"
    assert await all_events(http, "GET", path, params={"stream": "true"}) == events
    for number in range(len(events)):
        headers = {"last-event-id": str(number)}
        rest = await all_events(http, "GET", path, params={"stream": "true"}, headers=headers)
        assert rest == events[number + 1 :]


async def test_a_response_that_was_not_streamed_can_be_streamed_later(
    client: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    response = await client.responses.create(model="llm", input="Count to nine.")
    events = await all_events(http, "GET", f"responses/{response.id}", params={"stream": "true"})
    assert events[-1]["response"] == (await http.get(f"responses/{response.id}")).json()


async def test_a_team_answers_as_a_model_but_takes_no_tools(
    client: AsyncOpenAI, gateway: ScriptedGateway
) -> None:
    names = [model.id async for model in client.models.list()]
    assert "workflow/solo" in names
    response = await client.responses.create(model="workflow/solo", input="What is 12 * 7?")
    assert "84" in response.output_text
    assert response.model == "workflow/solo"
    with pytest.raises(openai.BadRequestError, match="'tools'"):
        await client.responses.create(
            model="workflow/solo",
            input="x",
            tools=[WEATHER],  # pyright: ignore
        )


async def test_a_model_error_is_a_status_or_the_last_event_of_a_stream(
    client: AsyncOpenAI,
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model="narrow", input="Go.")
    assert caught.value.code == "context_length_exceeded"
    stream = await client.responses.create(model="narrow", input="Go.", stream=True)
    last: Any = [event async for event in stream][-1]
    assert last.type == "response.failed"
    assert last.response.error.code == "invalid_prompt"


async def test_an_unknown_model_is_not_found(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.responses.create(model="lllm", input="Go.")
    assert caught.value.code == "model_not_found"


async def test_a_truncated_text_makes_the_response_incomplete(client: AsyncOpenAI) -> None:
    response = await client.responses.create(
        model="llm", input="Count to nine.", max_output_tokens=2
    )
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("responses/resp_none", 404),
        ("responses/chatcmpl-1", 404),
        ("responses/resp_%00", 404),
        ("responses/resp_none/input_items", 404),
    ],
)
async def test_an_unknown_response_is_not_found(
    http: httpx.AsyncClient, path: str, status: int
) -> None:
    assert (await http.get(path)).status_code == status


async def test_a_stream_position_that_is_not_a_number_is_refused(
    client: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    response = await client.responses.create(model="llm", input="Count to nine.")
    answer = await http.get(
        f"responses/{response.id}", params={"stream": "true", "starting_after": "9-0/1"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_event_id")


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "9" * 5000}, {"order": "up"}, {"after": "in_none"}]
)
async def test_invalid_paging_parameters_are_refused(
    client: AsyncOpenAI, http: httpx.AsyncClient, query: dict[str, str]
) -> None:
    response = await client.responses.create(model="llm", input="Count to nine.")
    answer = await http.get(f"responses/{response.id}/input_items", params=query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(query)))
