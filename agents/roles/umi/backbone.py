"""The texts of one model that does the work of all three roles: α-UMi's backbone, with which
global fine-tuning begins, and the single-model baseline.

`step_text` is its turn: the thought with the call, or with the answer, behind it; there is no
`Next:`, for there is nobody to choose.

    I look it up.
    Action: weather
    Action Input: {"city": "Oslo"}

`called_in_trajectory` and `ended_in_trajectory` are the pieces of the whole way in one text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from agents.records import ToolSpec
from agents.roles.umi.output import Action, written_call
from agents.roles.umi.transcript import ToolStyle, Turn, planner_input

GIVE_UP = "give up."


def backbone_input(tools: Sequence[ToolSpec], turns: Iterable[Turn], style: ToolStyle) -> str:
    """What the backbone reads: the planner's view, without turns of a caller."""
    return planner_input(tools, turns, style)


def step_text(rationale: str, then: str) -> str:
    """The backbone's turn; `then` is `call_part` or `conclusion_part`."""
    return f"{rationale}\n{then}" if rationale else then


def call_part(call: Action) -> str:
    return written_call(call.name, call.arguments)


def conclusion_part(answer: str | None) -> str:
    """The answer, or the words of giving up."""
    return f"conclusion: {GIVE_UP if answer is None else answer}"


def called_in_trajectory(number: int, rationale: str, call: Action) -> str:
    """A step of the whole way that calls, numbered from 1, up to where its observation begins."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return (
        f"{_numbered(number, rationale)}Action {number}: {call.name}\n"
        f"Action Input {number}: {arguments}\nObservation {number}: "
    )


def ended_in_trajectory(number: int, rationale: str, answer: str | None) -> str:
    """The last step of the whole way."""
    return f"{_numbered(number, rationale)}Answer: {GIVE_UP if answer is None else answer}"


def _numbered(number: int, rationale: str) -> str:
    return f"Rationale {number}: {rationale}\n" if rationale else ""
