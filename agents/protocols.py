"""A role's requests to its host: completions and tools. A role has no other access to the outside.

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
"""Maximum size in bytes of a completion's schema as JSON, or of the parameters of all its tools.
Compiling takes up to a second at this size, a millisecond for a typical schema."""


class Host(Protocol):
    """The outside world, as a role sees it during one step."""

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

        `options` are the run caller's, and override `sampling` or the pool's defaults.

        `json_schema` constrains the whole completion; local models accept at most
        `MAX_SCHEMA_BYTES`. `previous` is the earlier call of the same conversation whose ids the
        new prompt extends. Every request of a step is idempotent: a step that is retried after a
        crash gets the stored result back. Raises `RequestFailed` (see `loopline.agents.errors`)
        when the model refuses.
        """
        ...

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """Run a registered tool. A tool that fails answers `{"error": "…"}`; it does not raise."""
        ...
