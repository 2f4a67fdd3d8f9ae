"""The tool worker: runs registered tools for whoever asks on the bus."""

from __future__ import annotations

from agents.tools import call_tool
from bus import Delivery
from workers.messages import ToolPayload, tool_result


async def handle_tool(delivery: Delivery) -> None:
    """Answer one request. A tool that fails or hangs answers `{"error": …}` for the model."""
    payload = delivery.payload
    assert isinstance(payload, ToolPayload)
    result = await call_tool(payload.name, payload.arguments)
    await delivery.reply(tool_result.dump_json(result), store=True)
