"""The effect of a tool's call on the world, and how often the call may be made.

A worker that dies between a call and its reply leaves the call to another. What that worker does
depends on the tool's `Effect`:

- `none`: the call changes nothing, so it is made again.
- `keyed`: the call is made again with the same `ToolContext.key`, by which the service that carries
  it out recognises it.
- `once`: the call is not made again. Its outcome is unknown until the tool's `reconcile` function
  or a person says what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loopline.agents.records import JsonObject

Effect = Literal["none", "keyed", "once"]
OnUnknown = Literal["model", "person"]
"""Decider where an outcome is unknown and nothing reconciles it: the model, which reads so, or a
person, for whom the run waits."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Identifies the call. A tool takes it as a parameter of this type, which no model sees."""

    key: str
    """Name of the call, the same however often it is made: to be sent as an idempotency key."""
    run_id: str = ""
    agent: str = ""
    traceparent: str = ""
    """W3C `traceparent` of the call's span, to pass on to services that the tool calls."""


class ToolFailed(Exception):
    """Raised by a tool to report to the model what went wrong; the message is its whole answer. The
    call has not taken effect, or only in the way that the message says."""


class OutcomeUnknown(ToolFailed):
    """Raised by a tool that can't tell whether its call took effect, for example because an answer
    was lost."""


class NotCarriedOut(Exception):
    """Raised by a `reconcile` function: the call has not taken effect and never will, so it is made
    again. Its first worker may be paused, not dead: raise this only where a late effect
    is impossible, or recognised by its key."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """Outcome of a call."""

    value: JsonObject
    """Answer that the model reads."""
    unknown: str = ""
    """Reason why it is unknown whether the call took effect; empty where its outcome is certain."""


def interrupted_answer(name: str) -> ToolAnswer:
    """Answer for a call that began, never answered, and is not made again."""
    text = (
        f"a worker ended while it called {name}, so nobody knows whether the call took effect; it "
        "was not made again. Look before you repeat it."
    )
    return ToolAnswer({"error": text}, unknown="its worker ended, or was paused, during the call")
