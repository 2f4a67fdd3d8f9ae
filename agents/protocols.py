"""Requests of a role to its host: completions and tools. A role has no other access to the outside.

The host (a worker) turns each request into a message on the bus; a test can answer it directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from loopline.agents.records import (
    Call,
    GenerationOptions,
    JsonObject,
    Message,
    SamplingParams,
    ToolSpec,
)

MAX_SCHEMA_BYTES = 100_000
"""Most bytes of a completion's schema as JSON, or of the parameters of all its tools. Compiling
takes up to a second at this size, a millisecond for the usual schema."""


class Host(Protocol):
    """The world as a role sees it while it takes one step."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: SamplingParams | None = None,
        previous: Call | None = None,
        json_schema: JsonObject | None = None,
        options: GenerationOptions | None = None,
    ) -> tuple[Call, ...]:
        """Ask the policy of this role for `sampling.n` completions (one Call each).

        `options` are what the run's caller set, over `sampling` or the pool's own defaults.

        `json_schema` holds the whole completion; local models take at most `MAX_SCHEMA_BYTES`.
        `previous` is the earlier call of the same conversation whose ids the new prompt extends.
        Every request of a step is idempotent: a step that is retried after a crash gets the
        stored result back. Raises `RequestFailed` (see `loopline.agents.errors`) when the model
        refuses.
        """
        ...

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """Run a registered tool. A tool that fails answers `{"error": "…"}`; it does not raise."""
        ...
