"""The history that a role reads: the task's part, then the journal's part.

A run starts with only its question. A task of the environment `tool_step` contains earlier steps,
which are shown as if they were the run's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from loopline.agents.environments import tool_step
from loopline.agents.environments.tool_step import GivenCall, GivenStep
from loopline.agents.records import Run, Step
from loopline.agents.roles.umi.backbone import call_part, step_text
from loopline.agents.roles.umi.output import Action, format_call, format_plan
from loopline.agents.roles.umi.transcript import Turn, asked_turns, observation_text, step_turns


def team_history(run: Run, journal: Iterable[Step], observation_chars: int) -> list[Turn]:
    """History as planner, caller and summarizer read it."""
    return [
        *_given_turns(run, observation_chars, _team_turns),
        *step_turns(journal, observation_chars),
    ]


def single_history(run: Run, journal: Iterable[Step], observation_chars: int) -> list[Turn]:
    """History as the single model reads it: each thought and its call form one turn."""
    return [
        *_given_turns(run, observation_chars, _single_turns),
        *step_turns(journal, observation_chars),
    ]


def _given_turns(
    run: Run, observation_chars: int, written: Callable[[GivenCall], Sequence[Turn]]
) -> list[Turn]:
    turns = asked_turns(run.task)
    if run.task.environment != tool_step.ENVIRONMENT:
        return turns
    step = GivenStep.model_validate(run.task.instance)
    for call in step.before:
        turns += _repeat_question(call.asked_again)
        turns += written(call)
        turns.append(Turn("observation", observation_text(call.output, observation_chars)))
    return [*turns, *_repeat_question(step.asked_again)]


def _repeat_question(message: str | None) -> list[Turn]:
    return [] if message is None else [Turn("user", message)]


def _team_turns(call: GivenCall) -> Sequence[Turn]:
    written = call.text if call.name is None else format_call(call.name, call.arguments)
    return Turn("assistant", format_plan(call.rationale, "call")), Turn("caller", written)


def _single_turns(call: GivenCall) -> Sequence[Turn]:
    named = None if call.name is None else Action(call.name, call.arguments)
    then = call.text if named is None else call_part(named)
    return (Turn("assistant", step_text(call.rationale, then)),)
