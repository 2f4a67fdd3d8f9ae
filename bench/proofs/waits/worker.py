"""`python -m loopline.bench.proofs.waits.worker SETTINGS.json`: a role worker with the workflow of
this proof, whose options determine what a run waits for."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from loopline.agents.approvals import ApprovingHost
from loopline.agents.payloads import QuestionPayload, SignalPayload
from loopline.agents.prompts import Prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Candidate, Decision, JsonObject, Outcome, Run, Step
from loopline.agents.roles import roles
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.workflows import Finish, Handoff, Routing, Wait, workflows

DAY = 86_400.0
ROLE = "waiter"
SIGNAL = "go"


class Waiter:
    """Role that makes its steps without a model. A run that needs an approval asks for it in its
    first step."""

    name = ROLE
    version = 1
    prompts: tuple[Prompt, ...] = ()

    async def step(self, context: StepContext, host: Host) -> StepResult:
        payload, options = context.payload, context.run.options
        if isinstance(payload, SignalPayload):
            woken = payload.woken
            data: JsonObject = {
                "kind": woken.kind if woken else "",
                "id": woken.id if woken else "",
            }
            return StepResult((Candidate(),), Decision(kind="woken", data=data))
        if options["kind"] == "approval":
            assert isinstance(host, ApprovingHost)
            approval = await host.approve(ROLE, {"answer": context.run.id}, 30 * DAY)
            data = {"kind": approval.decision, "id": approval.by}
            return StepResult((Candidate(),), Decision(kind="woken", data=data))
        return StepResult((Candidate(),), Decision(kind="wait"))


class Waiting:
    """Workflow of a step, a wait, and a step after it."""

    name = "waiting"
    roles = (ROLE,)
    default_policies: Mapping[str, str] = {}

    def check_options(self, options: JsonObject) -> JsonObject:
        return options

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff(ROLE, turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        if step.decision.kind == "wait":
            seconds = run.options["seconds"]
            assert isinstance(seconds, float)
            return Wait(SIGNAL, role=ROLE, turn=1, expires=seconds)
        return Finish(Outcome.ANSWERED, answer=str(step.decision.data["kind"]))


def register() -> None:
    """Register the role and the workflow in this process."""
    if ROLE not in roles.names():
        roles.register(Waiter())
        workflows.register(Waiting())


if __name__ == "__main__":
    register()
    from loopline.workers.__main__ import main

    sys.exit(main())
