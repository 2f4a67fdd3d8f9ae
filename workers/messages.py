"""Payload types of the messages on the bus, and the names of the streams."""

from __future__ import annotations

from typing import cast

from pydantic import Field, TypeAdapter

from loopline.agents.payloads import payload_types
from loopline.agents.records import (
    Call,
    GenerationOptions,
    JsonObject,
    Message,
    SamplingParams,
    StoredRecord,
    ToolSpec,
)
from loopline.bus import Bus, Registry, live_workers

TOOL_STREAM = "tools"
JUDGE_STREAM = "judge"
"""Stream of requests from `loopline.agents.judging`, served by separate workers, the only ones with
the problems."""
OFFERED_TOOLS = "offered_tools"
"""Key in a tool worker's presence details: specs of the tools that its sources offer now."""
BREAKERS = "breakers"
"""Key in a gpu worker's presence details: `EndpointBreaker.state` by pool."""
METRICS_ADDRESS = "metrics"
"""Key in a worker's presence details: host:port of its `/metrics`, if it has one."""


async def offered_tools_on(bus: Bus) -> dict[str, ToolSpec]:
    """Tools of MCP servers and HTTP APIs that the workers on this bus offer now, by name."""
    specs = [
        ToolSpec.model_validate(spec)
        for worker in await live_workers(bus)
        if worker.kind == "tool" and worker.state == "ready"
        for spec in worker.details.get(OFFERED_TOOLS, ())
    ]
    return {spec.name: spec for spec in specs}


def role_stream(role: str) -> str:
    """Work stream of a role's steps."""
    return f"role:{role}"


def role_of(stream: str) -> str:
    """The role that this stream belongs to."""
    return stream.removeprefix("role:")


def inference_stream(pool: str) -> str:
    """Work stream of a model pool's requests."""
    return f"infer:{pool}"


class CompletionPayload(StoredRecord):
    """Completion request of a role to its model."""

    agent: str
    pool: str
    policy: str = ""
    """The pool, or pool/adapter. Empty from an older sender: the pool."""
    messages: tuple[Message, ...] = Field(min_length=1)
    tools: tuple[ToolSpec, ...] = ()
    sampling: SamplingParams | None = None
    """Sampling parameters; None for the pool's own defaults."""
    seed: int
    previous_ids: tuple[int, ...] = ()
    json_schema: JsonObject | None = None
    options: GenerationOptions | None = None
    """Options of the run's caller, which override `sampling` and the pool's defaults."""
    stream: bool = False
    """Whether to publish the text in the run's log during generation."""


class ToolPayload(StoredRecord):
    """Tool call request of a role."""

    agent: str
    name: str
    arguments: JsonObject


calls: TypeAdapter[tuple[Call, ...]] = TypeAdapter(tuple[Call, ...])
"""The reply to a `CompletionPayload`."""


def answered(record: object) -> tuple[Call, ...]:
    """The call, as the record from which it was encoded."""
    assert isinstance(record, tuple)
    return cast("tuple[Call, ...]", record)


tool_result: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)
"""The reply to a `ToolPayload`."""


def registry() -> Registry:
    """Every payload type that this process understands, including those of plug-ins."""
    message_registry = Registry()
    for name, payload in payload_types().items():
        message_registry.register(
            name, payload, version=payload.type_version, readable_from=payload.readable_from
        )
        for from_version, lift in payload.upcasts.items():
            message_registry.upcast(name, from_version, lift)
    message_registry.register("completion", CompletionPayload)
    message_registry.register("tool", ToolPayload)
    return message_registry
