"""The texts of one model that does the work of all three roles: α-UMi's backbone, the starting
point of global fine-tuning, and the single-model baseline.

`step_text` is its turn: the thought, followed by the call or the answer; there is no `Next:`, since
there is no role to choose.

    I look it up.
    Action: weather
    Action Input: {"city": "Oslo"}

`call_step_text` and `final_step_text` are the pieces of the whole trajectory in one text, in the
format of the global row in the README of RichardAragon/MultiAgentLLM. Two lines are added: an
action's input, without which the action cannot be called, and the rationale before the answer, if
there is one.

    Rationale 1: I look it up.

    Action 1: weather
    Action Input 1: {"city": "Oslo"}
    Observation 1: {"sky": "rain"}

    Answer: It rains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loopline.agents.records import ToolSpec
from loopline.agents.roles.umi.output import (
    Action,
    Unreadable,
    format_call,
    read_action,
    read_answer,
)
from loopline.agents.roles.umi.transcript import ToolStyle, Turn, planner_input
from loopline.agents.thinking import text_without_thoughts

GIVE_UP = "give up."

_PART = re.compile(
    r"(?im)^[ \t*_`#>]*(?:(?P<call>action)|(?P<conclude>conclusion))[\s*_`]*:[\s*_`]*"
)
_END = "</s>"


@dataclass(frozen=True, slots=True)
class CallTurn:
    """A turn with a call, or with an attempt at one."""

    rationale: str
    call: Action | Unreadable


@dataclass(frozen=True, slots=True)
class FinalTurn:
    """A turn that ends the trajectory."""

    rationale: str
    answer: str | None
    """None: the model gives up."""


def backbone_input(tools: Sequence[ToolSpec], turns: Iterable[Turn], style: ToolStyle) -> str:
    """The backbone's input: the planner's view, without the caller's turns."""
    return planner_input(tools, turns, style)


def step_text(rationale: str, then: str) -> str:
    """The backbone's turn; `then` is `call_part` or `conclusion_part`."""
    return f"{rationale}\n{then}" if rationale else then


def call_part(call: Action) -> str:
    return format_call(call.name, call.arguments)


def conclusion_part(answer: str | None) -> str:
    """The answer, or the text for giving up."""
    return f"conclusion: {GIVE_UP if answer is None else answer}"


def read_step(text: str) -> CallTurn | FinalTurn | Unreadable:
    """Parse the backbone's turn: the part that starts at its first line `Action:` or `conclusion:`,
    and the thought before it."""
    body = text_without_thoughts(text).partition(_END)[0]
    match = _PART.search(body)
    if match is None:
        return Unreadable("its text has no line `Action:` and no line `conclusion:`")
    rationale = read_answer(body[: match.start()])
    if match["call"]:
        return CallTurn(rationale, read_action(body[match.start() :]))
    answer = body[match.end() :].strip()
    if not answer:
        return Unreadable("nothing follows `conclusion:`")
    gives_up = answer.strip("*_`\"' .").lower() == GIVE_UP.rstrip(".")
    return FinalTurn(rationale, None if gives_up else answer)


def call_step_text(number: int, rationale: str, call: Action) -> str:
    """A call step of the trajectory, numbered from 1, up to the start of its observation."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return (
        f"{_number_step(number, rationale)}Action {number}: {call.name}\n"
        f"Action Input {number}: {arguments}\nObservation {number}: "
    )


def final_step_text(number: int, rationale: str, answer: str | None) -> str:
    """The last step of the trajectory."""
    return f"{_number_step(number, rationale)}Answer: {GIVE_UP if answer is None else answer}"


def _number_step(number: int, rationale: str) -> str:
    return f"Rationale {number}: {rationale}\n\n" if rationale else ""
