"""An application in one file: tools, agents, and how to ask them (`loopline.runtime.app.app`)."""

from __future__ import annotations

from loopline.agents.escalation_options import EscalationOptions
from loopline.agents.records import GenerationOptions
from loopline.runtime.app.app import App
from loopline.runtime.app.errors import (
    AnswerTimeout,
    AskError,
    GaveUp,
    OverBudget,
    RunCancelled,
    ThreadBusy,
    WrongAnswer,
)
from loopline.runtime.app.events import (
    Answered,
    Event,
    StepEnded,
    TextDelta,
    TextRestarted,
    ToolCalled,
)
from loopline.runtime.app.thread import Thread

__all__ = [
    "AnswerTimeout",
    "Answered",
    "App",
    "AskError",
    "EscalationOptions",
    "Event",
    "GaveUp",
    "GenerationOptions",
    "OverBudget",
    "RunCancelled",
    "StepEnded",
    "TextDelta",
    "TextRestarted",
    "Thread",
    "ThreadBusy",
    "ToolCalled",
    "WrongAnswer",
]
