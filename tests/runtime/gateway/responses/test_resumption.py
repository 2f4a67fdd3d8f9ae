"""A response's stream resumes where it stopped, whichever process dies."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.runtime.gateway.responses.conftest import Event, events_of, serving_responses
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

TEXT = "one two three four five six seven eight nine, and once more: one two three four five"
QUESTION = {"model": "slow", "input": "Count to nine.", "stream": True, "background": True}


@pytest.fixture
def fresh() -> Iterator[ScriptedGateway]:
    with serving_responses() as deployment:
        yield deployment


def kill(gateway: ScriptedGateway, kind: str) -> None:
    for worker in gateway.workers(kind):
        os.kill(worker["pid"], signal.SIGKILL)


async def begun(http: httpx.AsyncClient) -> list[Event]:
    """The events of a new response up to its third piece of text; then the client disconnects."""
    events: list[Event] = []
    async with http.stream("POST", "responses", json=QUESTION) as response:
        async for event in events_of(response):
            events.append(event)
            if sum("delta" in event for event in events) == 3:
                return events
    raise AssertionError("the stream has ended")


async def resumed(gateway: ScriptedGateway, events: list[Event]) -> list[Event]:
    """All events, over as many connections as that takes."""
    path = f"responses/{events[0]['response']['id']}"
    async with asyncio.timeout(60), gateway.http() as http:
        while not events[-1]["type"].endswith(("completed", "failed", "incomplete")):
            query = {"stream": "true", "starting_after": events[-1]["sequence_number"]}
            try:
                async with http.stream("GET", path, params=query) as response:
                    async for event in events_of(response):
                        events.append(event)
            except httpx.TransportError:
                await asyncio.sleep(0.05)
    return events


def check(events: list[Event]) -> None:
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(event.get("delta", "") for event in events) == TEXT
    assert events[-1]["response"]["status"] == "completed"
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == TEXT


@pytest.mark.parametrize("kind", ["gateway", "gpu"])
async def test_a_resumed_stream_has_no_gap_or_repeat_after_a_worker_is_killed(
    fresh: ScriptedGateway, kind: str
) -> None:
    async with fresh.http() as http:
        events = await begun(http)
    await asyncio.to_thread(kill, fresh, kind)
    check(await resumed(fresh, events))


async def test_an_open_stream_continues_after_the_model_worker_is_killed(
    fresh: ScriptedGateway,
) -> None:
    events: list[Event] = []
    async with fresh.http() as http, http.stream("POST", "responses", json=QUESTION) as response:
        async for event in events_of(response):
            events.append(event)
            if sum("delta" in event for event in events) == 3 and "delta" in event:
                await asyncio.to_thread(kill, fresh, "gpu")
    check(events)
