"""Checks from a run's actions whether it played the instance that it was given, and reads its
texts.

A run's own statements (outcome, rewards, instance) are not trusted, except for the team that plays,
which is the arm's choice. A run that played another instance, with other rules or more turns, has
solved nothing.
"""

from __future__ import annotations

from pydantic import JsonValue

from loopline.agents.errors import JournalIncomplete
from loopline.agents.records import JsonObject, Trajectory
from loopline.agents.roles.pair.episode import text_of
from loopline.bench.arms import override_setting
from loopline.bench.errors import OutputError
from loopline.bench.judgement import Judgement, Question
from loopline.bench.taxonomy import Class

OTHER_INSTANCE = "the run played a different instance than requested"


def played_instance(trajectory: Trajectory, question: Question) -> JsonObject | None:
    """Return the instance of the question, with the team that played it; None if the run played
    another one. Raises OutputError for an item that no team plays."""
    match question.about.get("task"):
        case {"environment": str(environment), "instance": dict(asked)}:
            task = trajectory.run.task
            instance = override_setting(asked, {"team": _team_of(task.instance)})
            same = (task.environment, task.instance) == (environment, instance)
            return instance if same else None
        case _:
            raise OutputError("the item has no task for a team: its manifest is damaged")


def texts_of_role(trajectory: Trajectory, role: str) -> list[str]:
    """Return the text of each action that a role executed, in order. Raises `JournalIncomplete`."""
    # A failed step has no action.
    steps = [
        step for step in trajectory.steps if step.agent == role and step.decision.kind == "acted"
    ]
    return [text_of(step) for step in sorted(steps, key=lambda step: step.turn)]


def turns_of(trajectory: Trajectory, team: tuple[str, ...], most: int) -> list[list[str]]:
    """Return the texts of each team member, turn by turn. Raises `JournalIncomplete` for a run with
    more turns than allowed, or with agents outside the team."""
    written = [texts_of_role(trajectory, role) for role in team]
    allowed = most if len(team) > 1 else 1
    if len(written[0]) > allowed:
        raise JournalIncomplete(
            f"{len(written[0])} turns were played, but only {allowed} are allowed"
        )
    strangers = {step.agent for step in trajectory.steps} - set(team)
    if strangers:
        raise JournalIncomplete(f"{min(strangers)!r} took part, but is not on the team")
    return written


def unsolved_judgement(why: str) -> Judgement:
    """Return the judgement of a run that played another instance or broke its rules."""
    return Judgement(
        verdicts={"solved": False}, prediction=None, signals=(Class.ILLEGAL,), detail=why
    )


def _team_of(instance: JsonObject) -> JsonValue:
    setting = instance.get("setting")
    return setting.get("team") if isinstance(setting, dict) else None
