"""A deployment whose gateway the Responses API is asked of."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.runtime.conftest import LIMIT, Deployment

PROFILE = Path(__file__).with_name("deployment.toml")
WORKERS = ("planner", "gpu", "tool")

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


@dataclass(frozen=True)
class Served:
    """A deployment, and how its user reaches the gateway."""

    deployment: Deployment
    url: str
    """With `/v1`."""
    key: str

    def openai(self, key: str | None = None) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url=self.url, api_key=key or self.key, max_retries=0, timeout=LIMIT
        )

    def http(self, key: str | None = None) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {key or self.key}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=LIMIT)

    def another_key(self) -> str:
        """Of a second caller."""
        return json.loads(self.deployment.ok("keys", "create", "other", "--json"))["key"]


@contextlib.contextmanager
def serving(*overrides: str) -> Generator[Served]:
    """A deployment of its own, that is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        deployment = Deployment(Path(folder))
        try:
            deployment.up(
                "workers.gateway.count=1",
                "gateway.port=0",
                *overrides,
                profile=str(PROFILE),
                kinds=WORKERS,
            )
            run = deployment.state.running()
            assert run is not None
            assert run.gateway is not None
            key = deployment.state.gateway_key.read_text("ascii").strip()
            yield Served(deployment, run.gateway, key)
        finally:
            deployment.end()


@pytest.fixture(scope="package")
def gateway() -> Iterator[Served]:
    """Don't stop or break it."""
    with serving() as deployment:
        yield deployment


@pytest.fixture
async def client(gateway: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with gateway.openai() as client:
        yield client


@pytest.fixture
async def http(gateway: Served) -> AsyncIterator[httpx.AsyncClient]:
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
