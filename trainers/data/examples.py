"""Training examples from a trajectory: α-UMi's global sets and its three local ones.

| set | reads | learns |
|---|---|---|
| `global_trajectories` | tools, instruction | the whole solution; observations are not learned |
| `global_steps` | tools, history | thought and call, or thought and answer: the paper's form |
| `planner` | tools, history | rationale and `Next:` |
| `caller` | tools, history, thought | the call |
| `summarizer` | history | the answer |

The whole solution has the form of the global row in the README of RichardAragon/MultiAgentLLM (see
`loopline.agents.roles.umi.backbone`), but the instruction comes after the tools and in α-UMi's
turns, as in every input here. That README's planner row contains all rationales of a solution. Here
each rationale is a row of its own, which reads the preceding turns as in a run, and specifies the
next role in α-UMi's words: `caller` and `conclusion` for its `Caller` and `Summarizer`.

Inputs and targets of the local sets are the texts of a run of `umi` with the same options, letter
by letter. As in the published scripts (X-PLUG/Multi-LLM-Agent, `GLPFT/process_data/toolbench`),
planner and caller steps with hallucinated functions and the answer `none` are dropped. In addition,
targets that no role could be served with are dropped: calls whose arguments are not a JSON object,
and targets that their own role would read differently. Unlike in the published scripts, a
hallucinated call stays in the caller's later histories, as in a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from loopline.agents.prompts import Prompt, load_prompt
from loopline.agents.records import Record
from loopline.agents.roles.umi.backbone import (
    backbone_input,
    call_part,
    call_step_text,
    conclusion_part,
    final_step_text,
    step_text,
)
from loopline.agents.roles.umi.output import (
    Action,
    PlannerTurn,
    format_call,
    format_plan,
    read_action,
    read_answer,
    read_plan,
)
from loopline.agents.roles.umi.settings import UmiOptions
from loopline.agents.roles.umi.transcript import Turn, caller_input, planner_input, summarizer_input
from loopline.trainers.data.trajectories import (
    Step,
    Trajectory,
    histories,
    observation_turn,
    planner_turn,
)

SetName = Literal["global_trajectories", "global_steps", "planner", "caller", "summarizer"]
SETS: tuple[SetName, ...] = (
    "global_trajectories", "global_steps", "planner", "caller", "summarizer",
)  # fmt: skip

HALLUCINATED = "the function is not among the tools"
NO_ARGUMENTS = "the call cannot be read"
ANSWER_NONE = "the answer is `none`"
ANSWER_EMPTY = "the answer is empty"
NO_END = "the trajectory has no end"
READ_OTHERWISE = "the role would read the target as something else"


class Span(Record):
    """A piece of a target."""

    text: str
    learned: bool = True
    """False for text that no model writes: the observations within a whole trajectory."""


class Example(Record):
    """One row: the model reads `system` and `input` as two messages and writes `target`."""

    source: str
    trajectory_id: str
    step: int
    """Number of the step in its trajectory, from 0; 0 for a whole trajectory."""
    instruction_id: str
    system: str
    input: str
    target: tuple[Span, ...]

    @property
    def target_text(self) -> str:
        return "".join(span.text for span in self.target)


@dataclass(frozen=True)
class DroppedRow:
    """A row that was not made."""

    set: SetName
    source: str
    reason: str


Made = tuple[SetName, Example] | DroppedRow


def prompts_of(options: UmiOptions) -> dict[SetName, Prompt]:
    """The system prompt of each set."""
    caller = "umi_caller_json" if options.constrained else "umi_caller"
    return {
        "global_trajectories": load_prompt("umi_trajectory"),
        "global_steps": load_prompt("umi_backbone"),
        "planner": load_prompt("umi_planner"),
        "caller": load_prompt(caller),
        "summarizer": load_prompt("umi_summarizer"),
    }


def examples_of(trajectory: Trajectory, options: UmiOptions) -> Iterator[Made]:
    """Every row of every set that the trajectory could yield, or why not: one per step for
    `global_steps` and `planner`, one per call for `caller`, one per conclusion for `summarizer`,
    and one for the whole trajectory."""
    yield _Maker(trajectory, options).whole()
    yield from _backbone_steps(trajectory, options)
    yield from _role_rows(trajectory, options)


@dataclass(frozen=True)
class _Maker:
    """Makes rows of one trajectory."""

    trajectory: Trajectory
    options: UmiOptions

    def row(self, name: SetName, step: int, text: str, *target: Span) -> Made:
        return name, Example(
            source=self.trajectory.source,
            trajectory_id=self.trajectory.id,
            step=step,
            instruction_id=self.trajectory.instruction_id,
            system=prompts_of(self.options)[name].text,
            input=text,
            target=target,
        )

    def dropped(self, name: SetName, reason: str) -> DroppedRow:
        return DroppedRow(name, self.trajectory.source, reason)

    def whole(self) -> Made:
        """The whole solution. It omits the search's user messages between the steps
        (`asked_again`)."""
        trajectory, name = self.trajectory, "global_trajectories"
        if not trajectory.ended:
            return self.dropped(name, NO_END)
        spans: list[Span] = []
        for number, step in enumerate(trajectory.steps, start=1):
            if step.next != "call":
                reason = missing_answer_reason(step)
                if reason is not None:
                    return self.dropped(name, reason)
                spans.append(Span(text=final_step_text(number, step.rationale, step.answer)))
            elif step.call is None:
                return self.dropped(name, NO_ARGUMENTS)
            else:
                observation = observation_turn(step, self.options.observation_chars).text
                spans.append(Span(text=call_step_text(number, step.rationale, step.call)))
                spans.append(Span(text=f"{observation}\n\n", learned=False))
        turns = [Turn("user", trajectory.instruction)]
        text = backbone_input(trajectory.tools, turns, self.options.tool_style)
        return self.row(name, 0, text, *spans)


def _backbone_steps(trajectory: Trajectory, options: UmiOptions) -> Iterator[Made]:
    make = _Maker(trajectory, options)
    turns = [Turn("user", trajectory.instruction)]
    for number, step in enumerate(trajectory.steps):
        if step.asked_again is not None:
            turns.append(Turn("user", step.asked_again))
        if step.next == "call":
            then = call_part(step.call) if step.call is not None else step.caller_text
        else:
            then = conclusion_part(step.answer)
        written = step_text(step.rationale, then)
        reason = (
            missing_answer_reason(step) if step.next != "call" else _misread_reason(step, written)
        )
        if reason is None:
            text = backbone_input(trajectory.tools, turns, options.tool_style)
            yield make.row("global_steps", number, text, Span(text=written))
        else:
            yield make.dropped("global_steps", reason)
        turns.append(Turn("assistant", written))
        if step.next == "call":
            turns.append(observation_turn(step, options.observation_chars))


def _role_rows(trajectory: Trajectory, options: UmiOptions) -> Iterator[Made]:
    make = _Maker(trajectory, options)
    for number, step, turns in histories(trajectory, options.observation_chars):
        yield _planner(make, number, step, turns)
        after = (*turns, planner_turn(step))
        if step.next == "call":
            yield _caller(make, number, step, after)
        elif step.next == "conclude":
            yield _summarizer(make, number, step, after)


def _planner(make: _Maker, number: int, step: Step, turns: Sequence[Turn]) -> Made:
    if _is_hallucinated(make.trajectory, step):
        return make.dropped("planner", HALLUCINATED)
    written = format_plan(step.rationale, step.next)
    plan = read_plan(written)
    if (
        not isinstance(plan, PlannerTurn)
        or plan.next != step.next
        or _strip_emphasis(plan) != _strip_emphasis(step)
    ):
        return make.dropped("planner", READ_OTHERWISE)
    text = planner_input(make.trajectory.tools, turns, make.options.tool_style)
    return make.row("planner", number, text, Span(text=written))


def _caller(make: _Maker, number: int, step: Step, turns: Sequence[Turn]) -> Made:
    if step.call is None:
        return make.dropped("caller", NO_ARGUMENTS)
    if _is_hallucinated(make.trajectory, step):
        return make.dropped("caller", HALLUCINATED)
    written = format_call(step.call.name, step.call.arguments, as_json=make.options.constrained)
    reason = _misread_reason(step, written)
    if reason is not None:
        return make.dropped("caller", reason)
    text = caller_input(make.trajectory.tools, turns, make.options.tool_style)
    return make.row("caller", number, text, Span(text=written))


def _summarizer(make: _Maker, number: int, step: Step, turns: Sequence[Turn]) -> Made:
    reason = missing_answer_reason(step)
    answer = step.answer or ""
    if reason is None and read_answer(answer) != answer.strip():
        reason = READ_OTHERWISE
    if reason is not None:
        return make.dropped("summarizer", reason)
    return make.row("summarizer", number, summarizer_input(turns), Span(text=answer))


def _strip_emphasis(step: PlannerTurn | Step) -> str:
    """The rationale without the marks of emphasis and code at its end, which reading removes."""
    return step.rationale.strip().rstrip("*_` \n")


def _is_hallucinated(trajectory: Trajectory, step: Step) -> bool:
    return step.call is not None and not trajectory.offers(step.call.name)


def missing_answer_reason(step: Step) -> str | None:
    """Why a final step that should contain an answer has none."""
    if step.next == "give_up":
        return None
    if step.answer is None or step.answer.strip().lower() == "none":
        return ANSWER_NONE
    return None if step.answer.strip() else ANSWER_EMPTY


def _misread_reason(step: Step, written: str) -> str | None:
    """Why a calling text would be read as a different call."""
    if step.call is None:
        return NO_ARGUMENTS
    wanted = Action(step.call.name, step.call.arguments)
    return None if read_action(written) == wanted else READ_OTHERWISE
