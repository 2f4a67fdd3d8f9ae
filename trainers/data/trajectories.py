"""The basis of training examples: an instruction, its tools, and one solution.

Wherever a trajectory comes from, its turns are those of a run of `umi` with it: the functions of
`loopline.agents.roles.umi.transcript`, which the served roles use, make them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from loopline.agents.records import ToolSpec
from loopline.agents.roles.umi.output import Action, Next, format_call, format_plan
from loopline.agents.roles.umi.transcript import Turn, observation_text
from loopline.trainers.data.json_files import Unreadable

HALF_A_PAIR = "half a surrogate pair"


@dataclass(frozen=True)
class Step:
    """One turn of the planner with its result."""

    rationale: str
    next: Next
    call: Action | None = None
    """The call; None for a step without a call, or whose call can't be read."""
    raw_call: str | None = None
    """The caller's text, if it was refused or can't be read."""
    output: JsonValue = None
    """The tool's answer, in a tool worker's format: `{"result": …}` or `{"error": …}`."""
    answer: str | None = None
    """Answer of a step that concludes; None if the trajectory has none."""
    asked_again: str | None = None
    """The user's message before this step."""

    @property
    def caller_text(self) -> str:
        """The caller's turn as the history shows it."""
        if self.raw_call is not None or self.call is None:
            return self.raw_call or ""
        return format_call(self.call.name, self.call.arguments)


@dataclass(frozen=True)
class Trajectory:
    """One solution of one instruction."""

    source: str
    id: str
    """Unique within its source."""
    instruction_id: str
    """The same for all trajectories of one instruction with its tools."""
    instruction: str
    tools: tuple[ToolSpec, ...]
    steps: tuple[Step, ...]

    @property
    def ended(self) -> bool:
        """Whether the last step concludes or gives up."""
        return bool(self.steps) and self.steps[-1].next != "call"

    def offers(self, name: str) -> bool:
        """Whether a function is one of the tools."""
        return any(tool.name == name for tool in self.tools)


def require_writable(trajectory: Trajectory) -> None:
    """Raise `Unreadable` for a text with half a surrogate pair: a JSON escape can encode it, but
    UTF-8 cannot, so no file could store a data set that includes it."""
    texts = [
        trajectory.instruction,
        [tool.model_dump() for tool in trajectory.tools],
        [
            [
                step.rationale,
                step.call and [step.call.name, step.call.arguments],
                step.raw_call,
                step.output,
                step.answer,
                step.asked_again,
            ]
            for step in trajectory.steps
        ],
    ]
    try:
        json.dumps(texts, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        excerpt = ascii(error.object[max(0, error.start - 40) : error.start + 1])
        raise Unreadable(HALF_A_PAIR, excerpt) from error


def histories(
    trajectory: Trajectory, observation_chars: int
) -> Iterator[tuple[int, Step, tuple[Turn, ...]]]:
    """Each step with its number, from 0, and the turns that its planner reads."""
    turns = [Turn("user", trajectory.instruction)]
    for number, step in enumerate(trajectory.steps):
        if step.asked_again is not None:
            turns.append(Turn("user", step.asked_again))
        yield number, step, tuple(turns)
        turns.append(planner_turn(step))
        if step.next == "call":
            turns.append(Turn("caller", step.caller_text))
            turns.append(observation_turn(step, observation_chars))


def planner_turn(step: Step) -> Turn:
    """The planner's turn as the history shows it."""
    return Turn("assistant", format_plan(step.rationale, step.next))


def observation_turn(step: Step, observation_chars: int) -> Turn:
    """The tool's answer, as the history shows it."""
    return Turn("observation", observation_text(step.output, observation_chars))
