"""One key stands for one request, however often and wherever it is sent."""

from __future__ import annotations

import asyncio
import hashlib
import time

import httpx
import orjson
import pytest

from loopline.bus import (
    Admission,
    Bus,
    BusSettings,
    Delivery,
    Finish,
    Outgoing,
    RunState,
    StepCommit,
    Wait,
    waits,
)
from loopline.runtime.gateway.idempotency import run_of_key
from tests.bus.payloads import Note, Woken, new_run_id, note, woken_note
from tests.bus.serving import ended, serving, until
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


async def test_the_same_key_for_another_route_or_session_is_a_conflict(
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


async def test_repeated_requests_join_the_one_in_progress_at_every_gateway(
    gateway: ScriptedGateway,
) -> None:
    body, key = asked("Count to nine.", model="slow"), {"idempotency-key": "joined"}
    clients = [gateway.http() for _ in range(2 * MAX_RUNS)]  # more than admission allows
    try:
        answers = await asyncio.gather(*(answered(client, body, **key) for client in clients))
    finally:
        for client in clients:
            await client.aclose()
    assert len({orjson.dumps(answer) for answer in answers}) == 1


async def test_a_stream_and_a_whole_answer_cannot_share_a_key(http: httpx.AsyncClient) -> None:
    body, key = asked("How old?"), {"idempotency-key": "both"}
    await answered(http, body, **key)
    response = await http.post("chat/completions", json=body | {"stream": True}, headers=key)
    assert response.status_code == 409


async def test_a_repeated_request_joins_the_stream_in_progress(gateway: ScriptedGateway) -> None:
    body, key = asked("Count to nine.", model="slow"), {"idempotency-key": "joined-stream"}
    async with gateway.http() as first, gateway.http() as second:
        streams = await asyncio.gather(streamed(first, body, **key), streamed(second, body, **key))
    assert streams[0] == streams[1]
    assert text_of(streams[0]).startswith("one two three")


async def test_without_a_key_every_request_starts_its_own_run(http: httpx.AsyncClient) -> None:
    body = asked("Count to nine.")
    first, second = await answered(http, body), await answered(http, body)
    assert first["id"] != second["id"]
    assert content(first) == content(second)


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_an_empty_or_overlong_key_is_refused(http: httpx.AsyncClient, key: str) -> None:
    response = await http.post(
        "chat/completions", json=asked("How old?"), headers={"idempotency-key": key}
    )
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_idempotency_key"


WEEK = 7 * 86_400.0


async def test_a_key_lives_as_long_as_its_run_even_while_the_run_waits(
    settings: BusSettings,
) -> None:
    """The run's record and its key expire together: when admitted, waiting, woken and ended."""

    async def lives() -> tuple[float, float]:
        shard = bus.keys.shard_of(claimed.id)
        ttl = [await bus.redis.pttl(k) for k in (shard.run(claimed.id), shard.idempotency(digest))]
        assert ttl == pytest.approx([ttl[0], ttl[0]], abs=5_000)
        return ttl[0] / 1000, retention

    async def handler(delivery: Delivery) -> None:
        run_id = delivery.envelope.run_id
        after = Outgoing("planner", woken_note(run_id, 1))
        if delivery.envelope.turn:
            await release.wait()
            await delivery.commit(StepCommit(b"{}", finish=Finish("answered")))
        else:
            await delivery.commit(StepCommit(b"{}", wait=Wait("paid", after, "text", WEEK)))

    async def state() -> RunState:
        return await bus.run_state(claimed.id)

    async def is_waiting() -> bool:
        return any(wait.kind == "signal" for wait in (await state()).waits)

    async def is_woken() -> bool:
        return not (await state()).waits

    release = asyncio.Event()
    async with Bus(settings.model_copy(update={"shards": 5})) as bus:
        bus.registry.register("note", Note)
        bus.registry.register("woken", Woken)
        retention = bus.settings.retention_seconds
        claimed = await run_of_key(bus, "caller", "key", "body", delay=WEEK)
        digest = claimed.digest
        assert await run_of_key(bus, "caller", "key", "body") == claimed
        start = (Outgoing("planner", note(claimed.id)),)
        deadline = time.time() + 60
        await bus.admit(Admission(claimed.id, b"{}", deadline, start, idempotency=digest))
        life, _ = await lives()
        assert life > retention
        async with serving(bus, ["planner"], handler):
            await until(is_waiting, "it waits")
            life, _ = await lives()
            assert life > WEEK + retention
            await waits.send_signal(bus, claimed.id, "paid", b'"yes"', "1")
            await until(is_woken, "it goes on")
            life, _ = await lives()
            assert life < WEEK
            release.set()
            await ended(bus, claimed.id)
        life, _ = await lives()
        assert life == pytest.approx(retention, rel=0.01)
        assert await run_of_key(bus, "caller", "key", "body") == claimed


async def test_a_key_stored_by_an_earlier_version_leads_to_its_run(bus: Bus) -> None:
    claimed = await run_of_key(bus, "caller", "new", "body")
    earlier = new_run_id()
    digest = hashlib.sha256(b"caller\0old").hexdigest()
    await bus.redis.set(bus.keys.earlier_idempotency(digest), f"{earlier} body", px=60_000)
    assert (await run_of_key(bus, "caller", "old", "body")).id == earlier != claimed.id
