"""Translates a workflow's routing into what the bus commits."""

from __future__ import annotations

from loopline.agents.records import Run, Step
from loopline.agents.workflows import Arrive, Continue, Fanout, Finish, Handoff, Routing, Wait
from loopline.bus import (
    TRACEPARENT_TAG,
    Envelope,
    Join,
    Outgoing,
    StepCommit,
    step_name,
    traceparent_of,
)
from loopline.bus import Finish as BusFinish
from loopline.bus import Wait as BusWait
from loopline.workers.messages import role_stream


def outgoing(run: Run, handoff: Handoff) -> Outgoing:
    """A hand-over as a message for its role's stream."""
    payload = handoff.payload
    return Outgoing(
        role_stream(handoff.role),
        Envelope(
            type=payload.type_name,
            type_version=payload.type_version,
            readable_from=payload.readable_from,
            run_id=run.id,
            turn=handoff.turn,
            branch=handoff.branch,
            deadline=run.deadline,
            traceparent=traceparent_of(
                run.id,
                step_name(run.id, handoff.turn, handoff.branch),
                run.tags.get(TRACEPARENT_TAG, ""),
            ),
            payload=payload.model_dump(mode="json"),
        ),
    )


def commit_of(run: Run, step: Step, routing: Routing) -> StepCommit:
    """All changes of a finished step, for the bus to apply at once."""
    publish: tuple[Outgoing, ...] = ()
    join: Join | None = None
    arrive = ""
    wait: BusWait | None = None
    finish: BusFinish | None = None
    match routing:
        case Continue(handoffs):
            publish = tuple(outgoing(run, handoff) for handoff in handoffs)
        case Fanout(handoffs, join_id, continuation):
            publish = tuple(outgoing(run, handoff) for handoff in handoffs)
            join = Join(join_id, len(handoffs), outgoing(run, continuation))
        case Arrive(join_id):
            arrive = join_id
        case Wait(signal, expires=seconds):
            wait = BusWait(signal, outgoing(run, routing.handoff(None)), "woken", seconds)
        case Finish(outcome, answer, reason):
            finish = BusFinish(outcome.value, answer or "", reason or "")
    calls = step.calls
    return StepCommit(
        step=step.model_dump_json().encode(),
        tokens=sum(call.usage.prompt + call.usage.completion for call in calls),
        micro_dollars=sum(call.cost_micro_dollars for call in calls),
        publish=publish,
        join=join,
        arrive=arrive,
        wait=wait,
        finish=finish,
        record=step,
    )
