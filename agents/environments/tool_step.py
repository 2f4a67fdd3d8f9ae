"""One step of a given trajectory: the available tools, and the steps and observations so far.

Each step of a recorded trajectory is predicted from the reference's own history (teacher forcing),
so an earlier mistake of the model does not change the request. The model's call is recorded but not
executed, and the run ends after it.
"""

from __future__ import annotations

from pydantic import Field, JsonValue

from loopline.agents.records import JsonObject, Record, ToolSpec

ENVIRONMENT = "tool_step"
MAX_TOOLS = 1_000


class GivenCall(Record):
    """A step with a call."""

    rationale: str = ""
    name: str | None = None
    """Name of the call; None if it is unreadable, and `text` then has the original text."""
    arguments: JsonObject = Field(default_factory=dict)
    text: str = ""
    output: JsonValue = None
    """Answer of the tool in a tool worker's form: `{"result": …}` or `{"error": …}`."""
    asked_again: str | None = None
    """Text of the user before this step."""


class GivenStep(Record):
    """Content of `Task.instance`; the instruction is the task's prompt."""

    tools: tuple[ToolSpec, ...] = Field(max_length=MAX_TOOLS)
    before: tuple[GivenCall, ...] = ()
    asked_again: str | None = None
    """Text of the user before the requested step."""
