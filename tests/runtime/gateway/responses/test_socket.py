"""`/v1/responses` over a WebSocket, by OpenAI's own client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
import websockets
from openai import AsyncOpenAI
from openai.lib.responses_websocket import AsyncResponsesWebSocketSession, ResponsesWebSocketLimits
from openai.resources.responses.responses import AsyncResponsesConnection
from openai.types.responses import ResponsesServerEvent

from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import load_resolved_file
from tests.runtime.gateway.responses.conftest import WEATHER, all_events
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

NINE = "one two three four five six seven eight nine"
ENDS = ("response.completed", "response.failed", "response.incomplete", "error")
LIMITS = ResponsesWebSocketLimits(
    max_lanes=8, max_events_per_lane=10_000, max_events=20_000, max_bytes_per_lane=2**24,
    max_bytes=2**25,
)  # fmt: skip


async def events_of(connection: AsyncResponsesConnection) -> list[ResponsesServerEvent]:
    """The events of one response."""
    events: list[ResponsesServerEvent] = []
    async with asyncio.timeout(60):
        async for event in connection:
            events.append(event)
            if event.type in ENDS:
                break
    return events


def text_of(events: list[ResponsesServerEvent]) -> str:
    last = events[-1]
    assert last.type == "response.completed", last
    return last.response.output_text


async def test_a_websocket_sends_the_same_events_as_a_stream(
    client: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    async with client.responses.connect() as connection:
        await connection.response.create(model="llm", input="Count to nine.", metadata={"a": "b"})
        events = await events_of(connection)
    assert text_of(events) == NINE
    body = {"model": "llm", "input": "Count to nine.", "stream": True}
    streamed = await all_events(http, "POST", "responses", json=body)
    assert [event.type for event in events] == [event["type"] for event in streamed]
    numbers = [getattr(event, "sequence_number", None) for event in events]
    assert numbers == list(range(len(events)))


async def test_a_tool_call_is_answered_over_the_same_connection(
    client: AsyncOpenAI,
) -> None:
    async with client.responses.connect() as connection:
        await connection.response.create(
            model="llm",
            input="What is the weather?",
            tools=[WEATHER],  # pyright: ignore
        )
        first = (await events_of(connection))[-1]
        assert first.type == "response.completed"
        [call] = [item for item in first.response.output if item.type == "function_call"]
        await connection.response.create(
            model="llm",
            previous_response_id=first.response.id,
            tools=[WEATHER],  # pyright: ignore
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": "18 °C"}],
        )
        assert text_of(await events_of(connection)) == "It has 18 °C there."


async def test_an_unstored_response_can_be_continued_only_on_its_own_connection(
    client: AsyncOpenAI,
) -> None:
    async with client.responses.connect() as connection:
        await connection.response.create(model="llm", input="My name is Ada.", store=False)
        first = (await events_of(connection))[-1]
        assert first.type == "response.completed"
        follow = {"previous_response_id": first.response.id, "input": "What is my name?"}
        await connection.response.create(model="llm", **follow)  # pyright: ignore
        assert text_of(await events_of(connection)) == "Your name is Ada."
    async with client.responses.connect() as another:
        await another.response.create(model="llm", **follow)  # pyright: ignore
        [error] = await events_of(another)
    assert error.type == "error"
    assert (error.status, error.error.code) == (404, "previous_response_not_found")


async def test_lanes_are_answered_concurrently(client: AsyncOpenAI) -> None:
    async with (
        client.responses.connect() as connection,
        AsyncResponsesWebSocketSession(connection, limits=LIMITS) as session,
    ):
        slow, quick = session.lane("slow"), session.lane("quick.1")
        await slow.send({"type": "response.create", "model": "slow", "input": "Count to nine."})
        await quick.send({"type": "response.create", "model": "llm", "input": "Count to nine."})
        async with asyncio.timeout(60):
            assert (await quick.get_final_response()).output_text == NINE
            await quick.send(
                {"type": "response.create", "model": "llm", "input": "My name is Ada."}
            )
            assert (await quick.get_final_response()).output_text == "Hello Ada."
            assert (await slow.get_final_response()).output_text.startswith(NINE)


async def test_requests_in_one_lane_are_answered_in_order(client: AsyncOpenAI) -> None:
    async with client.responses.connect() as connection:
        for text in ("Count to nine.", "My name is Ada."):
            await connection.response.create(model="llm", input=text)
        texts = [text_of(await events_of(connection)) for _ in range(2)]
    assert texts == [NINE, "Hello Ada."]


@pytest.mark.parametrize(
    ("request_fields", "status", "param"),
    [
        ({"model": "nobody", "input": "Hi"}, 404, "model"),
        ({"model": "llm", "input": "Hi", "background": True}, 400, "background"),
        ({"model": "llm", "input": "Hi", "generate": False}, 400, "generate"),
        ({"model": "llm"}, 400, "input"),
        ({"model": "llm", "input": "Hi", "stream_id": "a b"}, 400, "stream_id"),
        ({"type": "response.dance"}, 400, "type"),
    ],
)
async def test_a_wrong_request_gets_an_error_event_and_the_connection_stays_usable(
    client: AsyncOpenAI, request_fields: dict[str, Any], status: int, param: str
) -> None:
    async with client.responses.connect() as connection:
        await connection.send({"type": "response.create", **request_fields})  # pyright: ignore
        [error] = await events_of(connection)
        assert error.type == "error"
        assert (error.status, error.error.param) == (status, param), error
        await connection.response.create(model="llm", input="Count to nine.")
        assert text_of(await events_of(connection)) == NINE


async def test_a_message_that_is_not_a_request_gets_an_error_event(
    gateway: ScriptedGateway,
) -> None:
    address = gateway.url.replace("http://", "ws://") + "/responses"
    headers = {"authorization": f"Bearer {gateway.key}"}
    async with websockets.connect(address, additional_headers=headers) as socket:
        for message in ("{", "[]", "3", b"{}", "[" * 1_000):
            await socket.send(message)
            event = json.loads(await socket.recv())
            assert (event["type"], event["error"]["code"]) == ("error", "invalid_json")
        await socket.send(
            json.dumps({"type": "response.steer", "previous_response_id": "resp_x", "input": "No!"})
        )
        event = json.loads(await socket.recv())
        assert event["type"] == "response.steer.failed"
        assert event["error"]["code"] == "steering_not_supported"
        assert event["steer"] == {"input": "No!", "previous_response_id": "resp_x"}


async def test_a_connection_without_a_valid_key_is_refused(gateway: ScriptedGateway) -> None:
    async with gateway.openai("sk-wrong") as stranger:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with stranger.responses.connect():
                pass
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body or b"")["error"]["code"] == "invalid_api_key"


async def test_a_response_is_cancelled_when_its_client_disconnects(
    gateway: ScriptedGateway, client: AsyncOpenAI
) -> None:
    async with client.responses.connect() as connection:
        await connection.response.create(model="asleep", input="Are you there?")
        created = await connection.recv()
        assert created.type == "response.created"
    settings = load_resolved_file(gateway.state.resolved)
    async with Client.connect(settings.bus) as bus, asyncio.timeout(30):
        trajectory = await bus.wait(created.response.id.removeprefix("resp_"))
    assert trajectory.outcome == "cancelled"


# websockets 17.1 deprecates how the client opens its connection.
@pytest.mark.filterwarnings("ignore:connect.* must be used as a context manager:DeprecationWarning")
def test_the_synchronous_client_works_over_a_websocket(gateway: ScriptedGateway) -> None:
    with (
        openai.OpenAI(base_url=gateway.url, api_key=gateway.key, timeout=60) as client,
        client.responses.connect() as connection,
    ):
        connection.response.create(model="llm", input="Count to nine.")
        events: list[ResponsesServerEvent] = []
        for event in connection:
            events.append(event)
            if event.type in ENDS:
                break
    assert text_of(events) == NINE
