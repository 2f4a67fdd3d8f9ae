"""Tools: typed functions that models may call (`loopline.agents.tools.declaration`: how to add
one)."""

from __future__ import annotations

from typing import Any, TypeGuard

from loopline.agents.errors import UnknownName
from loopline.agents.records import JsonObject
from loopline.agents.registry import Registry
from loopline.agents.tools.calculator import calculate
from loopline.agents.tools.declaration import (
    Arguments,
    InvalidArguments,
    Tool,
    ToolDeclaration,
    tool,
)
from loopline.agents.tools.effects import (
    NotCarriedOut,
    OutcomeUnknown,
    ToolContext,
    ToolFailed,
)
from loopline.agents.tools.environment_tools import api_world, noted_call
from loopline.agents.tools.route_answer import route_answer

__all__ = [
    "Arguments",
    "InvalidArguments",
    "NotCarriedOut",
    "OutcomeUnknown",
    "Tool",
    "ToolContext",
    "ToolDeclaration",
    "ToolFailed",
    "call_tool",
    "tool",
    "tools",
]


def _is_tool(item: object) -> TypeGuard[Tool[Any]]:
    return isinstance(item, Tool)


tools: Registry[Tool[Any]] = Registry("tool", "loopline.tools", _is_tool)
"""Every tool that a tool worker can run."""

tools.register(calculate)
tools.register(api_world)
tools.register(noted_call)
tools.register(route_answer)


async def call_tool(name: str, arguments: JsonObject) -> JsonObject:
    """Run a registered tool, as a tool worker does for a request. An unknown name is answered like
    any other error; a plug-in that cannot be loaded raises `PluginError`."""
    try:
        tool_ = tools.get(name)
    except UnknownName as error:
        return {"error": str(error)}
    return await tool_.call(arguments)
