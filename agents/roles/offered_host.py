"""A host whose tools are those that a task or an agent offers."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.protocols import Host
from loopline.agents.records import (
    Call,
    GenerationOptions,
    JsonObject,
    Message,
    SamplingParams,
    ToolCall,
    ToolSpec,
)
from loopline.agents.tools.offered import OfferedTools


class OfferedHost:
    """Passes completions on, and turns a call of an offered tool into the request that runs it: a
    simulated world is rebuilt for each call from the earlier calls."""

    def __init__(self, host: Host, offered: OfferedTools) -> None:
        self._host = host
        self._offered = offered
        self._earlier: list[ToolCall] = []

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
        """See `loopline.agents.protocols.Host.complete`."""
        return await self._host.complete(
            messages,
            tools=tools,
            sampling=sampling,
            previous=previous,
            json_schema=json_schema,
            options=options,
        )

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """See `loopline.agents.protocols.Host.call_tool`."""
        request = self._offered.request(name, arguments, self._earlier)
        if request is None:
            return {"error": f"there is no tool {name[:64]!r}"}
        self._earlier.append(ToolCall(id="", name=name, arguments=arguments))
        return await self._host.call_tool(request.tool, request.arguments)
