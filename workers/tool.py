"""The tool worker: runs registered tools and those of tool sources for anyone who asks on the
bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopline.agents.tools import call_tool, tools, traceparent
from loopline.bus import Delivery
from loopline.bus.consumer import Handler
from loopline.workers.messages import ToolPayload, tool_result

if TYPE_CHECKING:
    from loopline.workers.tool_sources.sources import ToolSources


def tool_handler(sources: ToolSources | None = None) -> Handler:
    """What answers a request. A tool that fails or hangs answers `{"error": …}` for the model.

    A registered tool wins over one of a source that has the same name.
    """

    async def handle(delivery: Delivery) -> None:
        payload = delivery.payload
        assert isinstance(payload, ToolPayload)
        traceparent.set(delivery.envelope.traceparent)  # the task is this delivery's own
        foreign = sources is not None and sources.serves(payload.name)
        if sources is not None and foreign and payload.name not in tools.names():
            result = await sources.call(payload.name, payload.arguments)
        else:
            result = await call_tool(payload.name, payload.arguments)
        await delivery.reply(tool_result.dump_json(result), store=True)

    return handle
