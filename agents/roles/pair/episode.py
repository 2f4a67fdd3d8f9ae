"""The episode of a run, rebuilt from its task and its journal."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from loopline.agents.environments.environment import AnyEnvironment
from loopline.agents.environments.game import ActionRecord, Episode, ProgramNotRun, replay_episode
from loopline.agents.environments.registry import find
from loopline.agents.environments.tool_program import ProgramRun
from loopline.agents.errors import InvalidTask, JournalIncomplete, UnknownName
from loopline.agents.records import Run, Step


def environment_of(run: Run) -> AnyEnvironment:
    """The environment of a run. Raises `InvalidTask`, which lists the known names, and
    `PluginError`."""
    try:
        return find(run.task.environment)
    except UnknownName as error:
        raise InvalidTask(
            f"workflow {run.workflow!r} plays puzzles, code and math: {error}"
        ) from error


def episode_of(run: Run, journal: Iterable[Step] = ()) -> Episode:
    """The episode after the selected actions of these steps. Raises `InvalidTask` for a task that
    no environment plays, `JournalIncomplete` for a step without an action or whose program was not
    run, and `EnvironmentFault`."""
    environment = environment_of(run)
    ordered = sorted(journal, key=lambda step: step.turn)
    try:
        return replay_episode(environment, run.task.instance, map(executed_action, ordered))
    except ProgramNotRun as error:
        raise JournalIncomplete(f"run {run.id}: {error}") from error


def executed_action(step: Step) -> ActionRecord:
    """The action that a step of a puzzle executed, with the judge's facts about its program. Raises
    `JournalIncomplete`."""
    judged = step.decision.data.get("judged")
    if judged is None:
        return ActionRecord(step.agent, text_of(step))
    try:
        return ActionRecord(step.agent, text_of(step), ProgramRun.model_validate(judged))
    except ValidationError as error:
        raise JournalIncomplete(
            f"turn {step.turn} of {step.agent!r} has no result of its program"
        ) from error


def text_of(step: Step) -> str:
    """The text of the candidate that a step executed. Raises `JournalIncomplete`."""
    if step.selected >= len(step.candidates):
        raise JournalIncomplete(f"turn {step.turn} of {step.agent!r} has no selected action")
    return step.candidates[step.selected].calls[-1].said
