"""A run without a key is cancelled when its client leaves; a full deployment refuses requests."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import httpx

from loopline.runtime.client.client import Client
from tests.runtime.gateway.bus_view import active_runs, bus_client, is_full, is_idle
from tests.runtime.gateway.conftest import (
    MAX_RUNS,
    asked,
    events_of,
    eventually,
)
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

ASLEEP = asked("Hello?", model="asleep")


async def test_a_run_whose_only_client_has_left_is_cancelled(gateway: ScriptedGateway) -> None:
    async with bus_client(gateway) as client, gateway.http() as http:
        before = await active_runs(client)
        asking = asyncio.create_task(http.post("chat/completions", json=ASLEEP))
        run = (await eventually(lambda: new_run(client, before), "run")).pop()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        trajectory = await client.wait(run)
    assert trajectory.outcome == "cancelled"
    assert trajectory.reason == "its client has gone"


async def test_closing_a_stream_cancels_its_run(gateway: ScriptedGateway) -> None:
    body = asked("Count to nine.", model="slow", stream=True)
    async with bus_client(gateway) as client, gateway.http() as http:
        async with http.stream("POST", "chat/completions", json=body) as response:
            run = response.headers["x-loopline-run"]
            async for _ in events_of(response):
                break
        trajectory = await client.wait(run)
    assert trajectory.outcome == "cancelled"


async def test_a_run_with_an_idempotency_key_continues_without_its_client(
    gateway: ScriptedGateway,
) -> None:
    body = asked("Count to nine.", model="slow", stream=True)
    headers = {"idempotency-key": "goes-on"}
    async with bus_client(gateway) as client, gateway.http() as http:
        async with http.stream("POST", "chat/completions", json=body, headers=headers) as response:
            run = response.headers["x-loopline-run"]
            async for _ in events_of(response):
                break
        trajectory = await client.wait(run)
    assert trajectory.outcome == "answered"


async def test_a_full_deployment_asks_its_clients_to_retry_later(gateway: ScriptedGateway) -> None:
    async with bus_client(gateway) as client, AsyncExitStack() as stack:
        http = await stack.enter_async_context(gateway.http())
        await eventually(lambda: is_idle(client), "end of the runs before")
        asking = [
            asyncio.create_task(http.post("chat/completions", json=ASLEEP)) for _ in range(MAX_RUNS)
        ]
        stack.callback(lambda: [task.cancel() for task in asking])
        await eventually(lambda: is_full(client), f"{MAX_RUNS} runs")
        for body in (ASLEEP, ASLEEP | {"stream": True}):
            response = await http.post("chat/completions", json=body)
            assert response.status_code == 429
            assert float(response.headers["retry-after"]) > 0
            error = response.json()["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await eventually(lambda: is_idle(client), "end of the runs")


async def new_run(client: Client, before: set[str]) -> set[str]:
    return await active_runs(client) - before


async def test_health_needs_no_key(gateway: ScriptedGateway) -> None:
    async with httpx.AsyncClient() as stranger:
        response = await stranger.get(f"{gateway.root}/health")
    assert response.json() == {"status": "ok"}
