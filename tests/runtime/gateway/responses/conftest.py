"""A deployment whose gateway serves the Responses API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.runtime.gateway.scripted_gateway import ScriptedGateway, serving

PROFILE = Path(__file__).with_name("deployment.toml")
KINDS = ("planner", "gpu", "tool", "gateway")

Event = dict[str, Any]
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}


def serving_responses() -> AbstractContextManager[ScriptedGateway]:
    """A separate deployment, which is stopped at the end."""
    return serving(profile=PROFILE, kinds=KINDS)


@pytest.fixture(scope="package")
def gateway() -> Iterator[ScriptedGateway]:
    """Don't stop or break it."""
    with serving_responses() as deployment:
        yield deployment


@pytest.fixture
async def client(gateway: ScriptedGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with gateway.openai() as client:
        yield client


@pytest.fixture
async def http(gateway: ScriptedGateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http() as http:
        yield http


async def events_of(response: httpx.Response) -> AsyncIterator[Event]:
    """The events of a stream as they come, until `[DONE]`."""
    assert response.status_code == 200, (await response.aread()).decode()
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "data" and value != "[DONE]":
            yield json.loads(value)


async def all_events(
    http: httpx.AsyncClient, method: str, path: str, **request: Any
) -> list[Event]:
    async with http.stream(method, path, **request) as response:
        return [event async for event in events_of(response)]
