"""A stream resumes after the last event that its client has seen, at any gateway."""

from __future__ import annotations

import httpx
import pytest

from tests.runtime.gateway.conftest import (
    Event,
    JsonBody,
    asked,
    events_of,
    streamed,
    text_of,
)
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

SLOW = asked("Count to nine.", model="slow", stream=True)


async def first_events(response: httpx.Response, count: int) -> list[Event]:
    events: list[Event] = []
    async for event in events_of(response):
        events.append(event)
        if len(events) == count:
            break
    return events


async def test_a_client_that_reconnects_gets_the_events_it_has_not_seen(
    gateway: ScriptedGateway,
) -> None:
    body = SLOW | {"stream_options": {"include_usage": True}}
    headers = {"idempotency-key": "resumed-by-post"}
    async with (
        gateway.http() as client,
        client.stream("POST", "chat/completions", json=body, headers=headers) as response,
    ):
        before = await first_events(response, 4)
    # Another client has a new connection, which may reach the other gateway.
    async with gateway.http() as client:
        after = await streamed(client, body, **headers, **{"last-event-id": before[-1].id})
        whole = await streamed(client, body, **headers)
    assert before + after == whole
    assert whole[-1].data == "[DONE]"


async def test_a_stream_is_resumed_by_the_id_of_its_completion(
    http: httpx.AsyncClient, gateway: ScriptedGateway
) -> None:
    headers = {"idempotency-key": "resumed-by-id"}
    async with http.stream("POST", "chat/completions", json=SLOW, headers=headers) as response:
        before = await first_events(response, 3)
    path = f"chat/completions/{before[0].chunk['id']}"
    after: dict[str, list[Event]] = {}
    for way in ("header", "query"):
        last = before[-1].id
        options = {"stream": "true"} | ({"starting_after": last} if way == "query" else {})
        named = {"last-event-id": last} if way == "header" else {}
        async with (
            gateway.http() as client,
            client.stream("GET", path, params=options, headers=named) as response,
        ):
            after[way] = [event async for event in events_of(response)]
    assert after["header"] == after["query"]
    whole = (await http.get(path)).json()
    assert text_of([*before, *after["query"]]) == whole["choices"][0]["message"]["content"]
    ids = [event.id for event in (*before, *after["query"])]
    assert len(set(ids)) == len(ids)


async def test_a_finished_stream_is_the_same_when_it_is_read_again(http: httpx.AsyncClient) -> None:
    body = asked("Say it in every script.")
    first = await streamed(http, body, **{"idempotency-key": "read-again"})
    assert await streamed(http, body, **{"idempotency-key": "read-again"}) == first


async def test_a_stream_without_its_body_has_the_same_ids_and_the_logprobs(
    http: httpx.AsyncClient,
) -> None:
    body = asked("Count to nine.", logprobs=True, return_token_ids=True)
    *first, end = await streamed(http, body)
    async with http.stream(
        "GET", f"chat/completions/{first[0].chunk['id']}", params={"stream": "true"}
    ) as response:
        *again, usage, again_end = [event async for event in events_of(response)]
    assert usage.chunk["choices"] == []
    assert [(e.id, e.chunk["choices"]) for e in again] == [
        (e.id, e.chunk["choices"]) for e in first
    ]
    assert again_end == end


async def test_a_completion_is_found_by_its_id(http: httpx.AsyncClient) -> None:
    response = await http.post("chat/completions", json=asked("Count to nine."))
    completion = response.json()
    again = (await http.get(f"chat/completions/{completion['id']}")).json()
    assert again["choices"][0]["message"] == completion["choices"][0]["message"]
    assert again["usage"] == completion["usage"]


RESPONSE: JsonBody = {"model": "slow", "input": "Count to nine.", "stream": True}


@pytest.mark.parametrize(
    ("route", "body", "last_event", "code"),
    [
        ("chat/completions", SLOW, "yesterday", "invalid_event_id"),
        ("responses", RESPONSE, "yesterday", "invalid_event_id"),
        # A new run would lose the events before this one.
        ("chat/completions", SLOW, "1795884926601-0/1", "missing_idempotency_key"),
        ("responses", RESPONSE, "6", "missing_idempotency_key"),
    ],
)
async def test_an_event_that_cannot_be_continued_from_is_refused_and_starts_no_run(
    http: httpx.AsyncClient, route: str, body: JsonBody, last_event: str, code: str
) -> None:
    before = (await http.get("runs")).json()["data"]
    response = await http.post(route, json=body, headers={"last-event-id": last_event})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == code
    after = (await http.get("runs")).json()["data"]
    assert [run["id"] for run in after] == [run["id"] for run in before]
