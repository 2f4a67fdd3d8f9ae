"""Events of a run, as `App.stream` yields them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pydantic import JsonValue

from loopline.agents.held_back import accepted_call
from loopline.agents.records import JsonObject, Step


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A model has written more text. A text that a ladder or a person may refuse is sent as a whole
    once it is accepted."""

    agent: str
    text: str


@dataclass(frozen=True, slots=True)
class TextRestarted:
    """Another worker took over a completion and its text differs: this event replaces all text of
    that completion."""

    agent: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A tool was called; reported when the step that called it is committed."""

    agent: str
    name: str
    arguments: JsonObject
    output: JsonValue


@dataclass(frozen=True, slots=True)
class StepEnded:
    """An agent's turn is committed. `answer` is its result, if it answered."""

    agent: str
    decision: str
    answer: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """The run's end."""

    run_id: str
    answer: str


Event = TextDelta | TextRestarted | ToolCalled | StepEnded | Answered


def events_of(step: Step, streamed: Collection[str] = ()) -> list[Event]:
    """Return the events of a committed step. `streamed`: ids of calls whose text was already sent
    while it was written. An answer that was held back until its verdict is sent now."""
    events: list[Event] = []
    turns = step.observation.get("turns")
    calls = step.candidates[step.selected].calls if step.candidates else ()
    for call, entries in zip(calls, turns if isinstance(turns, list) else [], strict=False):
        if not isinstance(entries, list):
            continue
        for tool_call, entry in zip(call.tool_calls, entries, strict=False):
            output = entry.get("output") if isinstance(entry, dict) else None
            events.append(ToolCalled(step.agent, tool_call.name, tool_call.arguments or {}, output))
    accepted = accepted_call(step)
    if accepted is not None and accepted.id not in streamed and accepted.said:
        events.append(TextDelta(step.agent, accepted.said))
    answer = step.decision.data.get("answer")
    text = answer if isinstance(answer, str) else None
    return [*events, StepEnded(step.agent, step.decision.kind, text)]
