"""One key stands for one request, however often and wherever it is sent."""

from __future__ import annotations

import asyncio

import httpx
import orjson
import pytest

from loopline.bus import Bus
from loopline.runtime.gateway.idempotency import run_of_key
from tests.bus.payloads import new_run_id
from tests.runtime.gateway.conftest import (
    MAX_RUNS,
    answered,
    asked,
    content,
    streamed,
    text_of,
)
from tests.runtime.gateway.scripted_gateway import ScriptedGateway


async def test_the_same_request_gets_the_stored_answer(http: httpx.AsyncClient) -> None:
    body, key = asked("How old?"), {"idempotency-key": "stored"}
    first = await answered(http, body, **key)
    again = await answered(http, dict(reversed(body.items())), **key)
    assert orjson.dumps(again) == orjson.dumps(first)


async def test_another_body_under_the_same_key_is_a_conflict(http: httpx.AsyncClient) -> None:
    key = {"idempotency-key": "conflict"}
    await answered(http, asked("How old?"), **key)
    response = await http.post("chat/completions", json=asked("How tall?"), headers=key)
    assert response.status_code == 409
    assert response.json()["error"]["code"] == "idempotency_key_reused"


async def test_the_same_body_to_another_route_or_session_is_another_request(
    http: httpx.AsyncClient,
) -> None:
    body, key = {"model": "llm", "input": "How old?"}, {"idempotency-key": "places"}
    assert (await http.post("responses", json=body, headers=key)).status_code == 200
    assert (await http.post("responses", json=body, headers=key)).status_code == 200
    elsewhere = {"x-loopline-session": "other"}
    for route, headers in (("responses/compact", key), ("responses", key | elsewhere)):
        response = await http.post(route, json=body, headers=headers)
        assert response.status_code == 409
        assert response.json()["error"]["code"] == "idempotency_key_reused"


async def test_a_request_in_progress_is_joined_at_every_gateway(gateway: ScriptedGateway) -> None:
    body, key = asked("Count to nine.", model="slow"), {"idempotency-key": "joined"}
    clients = [gateway.http() for _ in range(2 * MAX_RUNS)]  # more than admission allows
    try:
        answers = await asyncio.gather(*(answered(client, body, **key) for client in clients))
    finally:
        for client in clients:
            await client.aclose()
    assert len({orjson.dumps(answer) for answer in answers}) == 1


async def test_a_stream_and_a_whole_answer_have_keys_of_their_own(http: httpx.AsyncClient) -> None:
    body, key = asked("How old?"), {"idempotency-key": "both"}
    await answered(http, body, **key)
    response = await http.post("chat/completions", json=body | {"stream": True}, headers=key)
    assert response.status_code == 409


async def test_a_stream_under_a_key_is_joined(gateway: ScriptedGateway) -> None:
    body, key = asked("Count to nine.", model="slow"), {"idempotency-key": "joined-stream"}
    async with gateway.http() as first, gateway.http() as second:
        streams = await asyncio.gather(streamed(first, body, **key), streamed(second, body, **key))
    assert streams[0] == streams[1]
    assert text_of(streams[0]).startswith("one two three")


async def test_without_a_key_every_request_is_a_run_of_its_own(http: httpx.AsyncClient) -> None:
    body = asked("Count to nine.")
    first, second = await answered(http, body), await answered(http, body)
    assert first["id"] != second["id"]
    assert content(first) == content(second)


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_key_of_no_use_is_refused(http: httpx.AsyncClient, key: str) -> None:
    response = await http.post(
        "chat/completions", json=asked("How old?"), headers={"idempotency-key": key}
    )
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_idempotency_key"


async def test_the_key_of_a_run_that_begins_later_lives_as_long_as_the_run(bus: Bus) -> None:
    retention, delay = bus.settings.retention_seconds, 7 * 86_400.0
    for name, seconds in (("now", 0.0), ("in a week", delay)):
        run_id = new_run_id()
        assert await run_of_key(bus, "caller", name, "digest", run_id, seconds) == run_id
        assert await run_of_key(bus, "caller", name, "digest", new_run_id()) == run_id
    keys = [key async for key in bus.redis.scan_iter(match=bus.keys.idempotency("*"))]
    lives = sorted([await bus.redis.pttl(key) / 1000 for key in keys])
    assert lives == pytest.approx([retention, retention + delay], rel=0.01)
