"""Helpers for engine tests that send requests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from loopline.agents.records import Message, SamplingParams, ToolSpec
from loopline.workers.engines.protocol import (
    Completion,
    Delta,
    Engine,
    EngineError,
    EngineEvent,
    GenerateRequest,
)

QUESTION = "What is 12 * 7 + 5?"
CALCULATE = ToolSpec(
    name="calculate",
    description="Exact arithmetic.",
    parameters={
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
    },
)
DELEGATE = ToolSpec(name="delegate", description="Hand a problem over.", parameters={})

_numbers = itertools.count()


def user(text: str) -> Message:
    return Message(role="user", content=text)


def request(
    question: str | Sequence[Message] = QUESTION,
    *,
    tools: Sequence[ToolSpec] = (),
    sampling: dict[str, Any] | None = None,
    **fields: Any,
) -> GenerateRequest:
    """Return a request with a unique id; greedy unless `sampling` sets otherwise."""
    messages = (user(question),) if isinstance(question, str) else tuple(question)
    fields.setdefault("id", f"request-{next(_numbers)}")
    return GenerateRequest(
        messages=messages,
        tools=tuple(tools),
        sampling=SamplingParams(**(sampling or {})),
        **fields,
    )


async def events(engine: Engine, generate_request: GenerateRequest) -> list[EngineEvent]:
    return [event async for event in engine.submit(generate_request)]


async def completions(engine: Engine, generate_request: GenerateRequest) -> list[Completion]:
    results = [
        event for event in await events(engine, generate_request) if isinstance(event, Completion)
    ]
    return sorted(results, key=lambda completion: completion.index)


async def ask(engine: Engine, question: str | Sequence[Message] = QUESTION, **fields: Any):
    """Return the only completion of a request."""
    (completion,) = await completions(engine, request(question, **fields))
    return completion


async def failure(engine: Engine, generate_request: GenerateRequest) -> EngineError:
    """Return the error that a request ends with."""
    with pytest.raises(EngineError) as caught:
        await events(engine, generate_request)
    return caught.value


def deltas(stream_events: Sequence[EngineEvent], index: int = 0) -> list[Delta]:
    return [event for event in stream_events if isinstance(event, Delta) and event.index == index]


def needs(engine: Engine, capability: str) -> None:
    if not getattr(engine.capabilities, capability):
        pytest.skip(f"the {engine.name} engine declares no {capability}")
