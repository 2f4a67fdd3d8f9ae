"""Single steps of which a small model was not sure, and which the big one took instead
(`loopline.agents.roles.escalation`): each is an example, from the conversation before it.

A journal contains only a model's output. Its input is reconstructed: the step is taken again with
its recorded answers, and the present roles make the requests.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from loopline.agents.errors import AgentError, RequestFailed
from loopline.agents.frontier import handoff_of
from loopline.agents.records import Step, Trajectory
from loopline.agents.replay import RecordedHost
from loopline.agents.roles.escalation import replacements
from loopline.agents.stepping import take_step
from loopline.trainers.data.json_files import Unreadable
from loopline.trainers.distill.escalation import StepEscalation

CHANGED = "step that today's roles would take otherwise"


def has_replaced_steps(trajectory: Trajectory) -> bool:
    """Whether the big model took a step of the run instead of the small one."""
    return any(replacements(step) for step in trajectory.steps)


def replaced_steps(trajectory: Trajectory) -> list[StepEscalation]:
    """The replaced steps of a run. Raises `Unreadable` for a run whose steps cannot be taken
    again."""
    return [
        escalation
        for at, step in enumerate(trajectory.steps)
        if replacements(step)
        for escalation in _of_step(trajectory, at, step)
    ]


def _of_step(trajectory: Trajectory, at: int, step: Step) -> list[StepEscalation]:
    host = RecordedHost(step)
    run, journal = trajectory.run.model_copy(update={"prompts": {}}), trajectory.steps[:at]
    _finish(
        take_step(
            run, journal, handoff_of(step), host, worker=step.worker, clock=lambda: run.created
        )
    )
    requests = {request.first: request for request in host.requests}
    escalations: list[StepEscalation] = []
    for place in sorted(replacements(step)):
        if place not in requests or place >= len(step.calls):
            raise Unreadable(CHANGED, f"turn {step.turn}, completion {place}")
        request = requests[place]
        escalations.append(
            StepEscalation(
                trajectory.run, step, step,
                place=place, messages=request.messages, tools=request.tools,
            )
        )  # fmt: skip
    return escalations


def _finish(step: Coroutine[Any, Any, object]) -> None:
    """Run a step with recorded answers: it waits for nothing, so it ends at once."""
    try:
        step.send(None)
    except StopIteration:
        return
    except (AgentError, RequestFailed) as error:
        raise Unreadable(CHANGED, str(error)) from error
    step.close()
    raise Unreadable(CHANGED, "it waits for something")
