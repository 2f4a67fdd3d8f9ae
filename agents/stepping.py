"""Take one step, from hand-over to routing, for role workers and the in-process driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loopline.agents.errors import RequestFailed
from loopline.agents.protocols import Host
from loopline.agents.records import Decision, JsonObject, Run, Step, StepTimings
from loopline.agents.roles import roles
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.workflows import workflows
from loopline.agents.workflows.routing import Handoff, Routing, finish_with_failure


@dataclass(frozen=True, slots=True)
class TakenStep:
    """A step that is ready to be committed, and the routing after it."""

    step: Step
    routing: Routing


async def take_step(
    run: Run,
    journal: tuple[Step, ...],
    handoff: Handoff,
    host: Host,
    *,
    worker: str,
    clock: Callable[[], float],
    waited: float = 0.0,
) -> TakenStep:
    """Let the role of a hand-over decide, and ask the workflow which role is next.

    `journal` contains the steps committed so far, `clock` returns Unix seconds, `waited` is the
    time in seconds between publication and now. Raises a retryable `RequestFailed` (and any error
    of the host's own): the step was not taken, and may be repeated. A permanent failure becomes a
    step with the decision `failed`, which ends the run.
    """
    started = clock()
    role = roles.get(handoff.role)
    context = StepContext(
        run=run,
        journal=journal,
        payload=handoff.payload,
        turn=handoff.turn,
        branch=handoff.branch,
    )
    try:
        result = await role.step(context, host)
    except RequestFailed as error:
        if error.retryable:
            raise
        result = _failed_result(error)
    step = Step(
        run_id=run.id,
        turn=handoff.turn,
        branch=handoff.branch,
        agent=handoff.agent,
        input=handoff.payload.as_json(),
        candidates=result.candidates,
        selected=result.selected,
        decision=result.decision,
        observation=result.observation,
        timings=StepTimings(started=started, ended=max(started, clock()), waited=max(0.0, waited)),
        worker=worker,
    )
    return TakenStep(step, route_step(run, journal, step))


def route_step(run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
    """The routing after a step. The decision `failed` ends the run in every workflow."""
    if step.decision.kind == "failed":
        return finish_with_failure(step)
    return workflows.get(run.workflow).route(run, journal, step)


def _failed_result(error: RequestFailed) -> StepResult:
    failure: JsonObject = {"kind": error.kind, "message": error.message}
    return StepResult(
        candidates=(),
        decision=Decision(kind="failed", data={"failure": error.kind, "reason": error.message}),
        observation={"turns": [], "failure": failure},
    )
