"""One deployment with two gateways for all tests that talk to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.runtime.conftest import LIMIT
from tests.runtime.gateway.scripted_gateway import ScriptedGateway, serving

PROFILE = Path(__file__).with_name("deployment.toml")
GATEWAY_KINDS = ("planner", "gpu", "gateway")
MAX_RUNS = 8
"""The profile's limit: with this many active runs the next one is refused."""

JsonBody = dict[str, Any]


@pytest.fixture(scope="package")
def gateway() -> Iterator[ScriptedGateway]:
    """Don't stop or break it."""
    with serving("workers.gateway.count=2", profile=PROFILE, kinds=GATEWAY_KINDS) as deployment:
        yield deployment


@pytest.fixture(scope="package")
def scripted() -> Iterator[ScriptedGateway]:
    """A scripted deployment with one gateway and short timeouts. Don't stop or break it."""
    with serving("gateway.header_seconds=1", "gateway.body_seconds=1") as deployment:
        yield deployment


@pytest.fixture
async def http(gateway: ScriptedGateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http() as client:
        yield client


def asked(text: str, model: str = "llm", **fields: Any) -> JsonBody:
    """The body of a request with one user message."""
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


async def answered(http: httpx.AsyncClient, body: JsonBody, **headers: str) -> JsonBody:
    """The completion that a request must get."""
    response = await http.post("chat/completions", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def content(completion: JsonBody) -> str:
    return completion["choices"][0]["message"]["content"]


@dataclass(frozen=True)
class Event:
    """One event of a stream."""

    id: str
    data: str

    @property
    def chunk(self) -> JsonBody:
        return orjson.loads(self.data)


async def events_of(response: httpx.Response) -> AsyncIterator[Event]:
    """The events of a stream as they come; comments are left out."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if line and name:
            fields[name] = value
        elif not line and "data" in fields:
            yield Event(fields.get("id", ""), fields["data"])
            fields = {}


async def streamed(http: httpx.AsyncClient, body: JsonBody, **headers: str) -> list[Event]:
    """All events of the stream that a request must get."""
    async with http.stream(
        "POST", "chat/completions", json={**body, "stream": True}, headers=headers
    ) as response:
        assert response.status_code == 200, (await response.aread()).decode()
        return [event async for event in events_of(response)]


def text_of(events: list[Event]) -> str:
    """The text of the first choice, joined from its deltas."""
    choices = [event.chunk["choices"] for event in events if event.data != "[DONE]"]
    return "".join(
        choice["delta"].get("content") or ""
        for chunk in choices
        for choice in chunk
        if choice["index"] == 0
    )


async def eventually(
    condition: Callable[[], Awaitable[Any]], what: str, limit: float = LIMIT
) -> Any:
    """Wait until the condition holds; returns its value."""
    deadline = time.monotonic() + limit
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"within {limit:g} s: no {what}"
        await asyncio.sleep(0.02)
    return value
