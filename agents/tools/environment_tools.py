"""Tools of environments.

`noted_call` records a call without running it, for steps whose tools are only described.

`api_world` runs the simulated APIs: one call in the world that earlier calls of the run have left.
A tool worker keeps nothing between two requests. So a request contains everything that determines
the world, its seed and the calls so far, and the same request has the same answer wherever and
however often it runs. A call takes a fraction of a millisecond, no longer than starting a thread
for it would, and two milliseconds after 64 earlier calls. Only the first call in a process loads
the domains.
"""

from __future__ import annotations

from pydantic import Field

from loopline.agents.records import JsonObject, ToolCall
from loopline.agents.tools.declaration import Arguments, tool

MAX_EARLIER_CALLS = 64


class WorldCall(Arguments):
    """One call of an API."""

    name: str = Field(max_length=64)
    arguments: JsonObject


class ApiWorldArguments(Arguments):
    """A world as it was before the call, and the call."""

    world: int = Field(ge=0)
    offered: list[str]
    """Names of the APIs that may be called there."""
    earlier: list[WorldCall] = Field(max_length=MAX_EARLIER_CALLS)
    call: WorldCall


@tool(name="api_world", quick=True, effect="none")
def api_world(arguments: ApiWorldArguments) -> str:
    """Call an API of a simulated world. Made for tasks of the environment `api_worlds`."""
    # The worlds depend on this package, so they can't be imported earlier.
    from loopline.agents.environments.api_worlds import World

    earlier = [
        ToolCall(id=str(place), name=call.name, arguments=call.arguments)
        for place, call in enumerate(arguments.earlier)
    ]
    world = World.after(arguments.world, earlier, arguments.offered)
    return world.call(arguments.call.name, arguments.call.arguments)


class NotedCall(Arguments):
    """A call of a tool that is not here."""

    name: str
    arguments: JsonObject


@tool(quick=True, effect="none")
def noted_call(arguments: NotedCall) -> str:
    """Take note of a call. Made for tasks of the environment `tool_step`."""
    return ""
