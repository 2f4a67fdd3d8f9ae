"""A call that is recorded and not run: for steps whose tools are only described."""

from __future__ import annotations

from loopline.agents.records import JsonObject
from loopline.agents.tools.declaration import Arguments, tool


class NotedCall(Arguments):
    """A call of a tool that is not here."""

    name: str
    arguments: JsonObject


@tool(quick=True, effect="none")
def noted_call(arguments: NotedCall) -> str:
    """Take note of a call. Made for tasks of the environment `tool_step`."""
    return ""
