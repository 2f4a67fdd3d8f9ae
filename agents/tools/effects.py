"""The effect of a tool call on the world, and how often the call may be made.

If a worker dies between a call and its reply, another worker takes the call over. What that worker
does depends on the tool's `Effect`:

- `none`: the call changes nothing, so it is made again.
- `keyed`: the call is made again with the same `ToolContext.key`, by which the service that carries
  it out recognizes it.
- `once`: the call is not made again. Its outcome is unknown until the tool's `reconcile` function
  or a person reports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loopline.agents.records import JsonObject

Effect = Literal["none", "keyed", "once"]
OnUnknown = Literal["model", "person"]
"""Decides what happens if an outcome is unknown and nothing reconciles it: the model is told, or
the run waits for a person."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Identifies the call. A tool takes it as a parameter of this type, which models do not see."""

    key: str
    """Name of the call, the same however often the call is made: send it as an idempotency key."""
    run_id: str = ""
    agent: str = ""
    traceparent: str = ""
    """W3C `traceparent` of the call's span, to pass on to services that the tool calls."""


class ToolFailed(Exception):
    """Raised by a tool to tell the model what went wrong; the message is the whole answer. The call
    has had no effect, or only the effect that the message states."""


class OutcomeUnknown(ToolFailed):
    """Raised by a tool that can't tell whether its call took effect, for example because a response
    was lost."""


class NotCarriedOut(Exception):
    """Raised by a `reconcile` function: the call has not taken effect and never will, so it is made
    again. Its first worker may be paused, not dead: raise this only if a late effect is impossible,
    or recognized by its key."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """Outcome of a call."""

    value: JsonObject
    """Answer that the model reads."""
    unknown: str = ""
    """Reason why it is unknown whether the call took effect; empty if its outcome is certain."""


def interrupted_answer(name: str) -> ToolAnswer:
    """Answer for a call that was started, was never answered, and is not repeated."""
    text = (
        f"a worker ended while it called {name}, so nobody knows whether the call took effect; it "
        "was not made again. Look before you repeat it."
    )
    return ToolAnswer({"error": text}, unknown="its worker ended, or was paused, during the call")
