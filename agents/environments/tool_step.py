"""One step of a way that is given: which tools there are, and what was done and seen so far.

A step of a recorded trajectory is predicted from the reference's own history (teacher forcing), so
that an earlier mistake of the model does not change what it is asked. The call that it writes is
noted and not carried out, and the run ends after it.
"""

from __future__ import annotations

from pydantic import Field, JsonValue

from loopline.agents.records import JsonObject, Record, ToolSpec

ENVIRONMENT = "tool_step"
MAX_TOOLS = 1_000


class GivenCall(Record):
    """A step that called."""

    rationale: str = ""
    name: str | None = None
    """Name of the call; None where it can't be read: then `text` is what its writer wrote."""
    arguments: JsonObject = Field(default_factory=dict)
    text: str = ""
    output: JsonValue = None
    """Answer of the tool, as a tool worker gives it: `{"result": …}` or `{"error": …}`."""
    asked_again: str | None = None
    """What the user said before this step."""


class GivenStep(Record):
    """Content of `Task.instance`; the instruction is the task's prompt."""

    tools: tuple[ToolSpec, ...] = Field(max_length=MAX_TOOLS)
    before: tuple[GivenCall, ...] = ()
    asked_again: str | None = None
    """What the user said before the requested step."""
