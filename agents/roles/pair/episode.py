"""The episode of a run, rebuilt from its task and its journal."""

from __future__ import annotations

from collections.abc import Iterable

from agents.environments import games
from agents.environments.game import AGENTS, Agent, Episode, Taken, replayed
from agents.errors import InvalidTask, JournalIncomplete, UnknownName
from agents.records import Run, Step

_AGENTS: dict[str, Agent] = {agent: agent for agent in AGENTS}


def episode_of(run: Run, journal: Iterable[Step] = ()) -> Episode:
    """The episode after the selected actions of these steps. Raises `InvalidTask` for a task that
    no environment plays, and `JournalIncomplete` for a step without an action."""
    try:
        game = games.get(run.task.environment)
    except UnknownName as error:
        raise InvalidTask(
            f"workflow {run.workflow!r} plays puzzles, code and math: {error}"
        ) from error
    ordered = sorted(journal, key=lambda step: step.turn)
    return replayed(game, run.task.instance, map(taken_in, ordered))


def taken_in(step: Step) -> Taken:
    """The action that a step of a puzzle executed. Raises `JournalIncomplete`."""
    agent = _AGENTS.get(step.agent)
    if agent is None:
        raise JournalIncomplete(f"turn {step.turn} of {step.agent!r} is no puzzle's")
    return Taken(agent, text_of(step))


def text_of(step: Step) -> str:
    """The text of the candidate that a step executed. Raises `JournalIncomplete`."""
    if step.selected >= len(step.candidates):
        raise JournalIncomplete(f"turn {step.turn} of {step.agent!r} has no selected action")
    return step.candidates[step.selected].calls[-1].text
