"""The role worker: journal in, decision out, one committed step per delivery."""

from __future__ import annotations

import pydantic
import structlog

from loopline.agents.approvals import ApprovalNeeded
from loopline.agents.errors import AgentError, RequestFailed
from loopline.agents.payloads import Payload
from loopline.agents.records import Run, Step
from loopline.agents.stepping import take_step
from loopline.agents.workflows import Handoff
from loopline.bus import BudgetExceeded, Delivery, Inbox, Reject, Retry, run_ended, waits
from loopline.workers.host import BusHost
from loopline.workers.messages import role_of
from loopline.workers.routing import commit_of

log = structlog.get_logger("loopline.workers.role")


class RoleHandler:
    """Takes the steps of the roles of this process."""

    def __init__(self, inbox: Inbox, worker: str) -> None:
        self._inbox = inbox
        self._worker = worker

    async def handle(self, delivery: Delivery) -> None:
        """One step: read the journal, let the role decide, commit what follows from it.

        A request that a budget refuses ends the run. Raises `Retry` for troubles that may pass,
        `Reject` for a run that this process can't read or go on with.
        """
        envelope, payload = delivery.envelope, delivery.payload
        assert isinstance(payload, Payload)
        state = await delivery.run_state()
        if not state.active:
            raise run_ended(envelope.run_id, state.outcome)
        try:
            run = Run.model_validate_json(state.run)
            journal = tuple(Step.model_validate_json(step) for step in state.steps)
        except pydantic.ValidationError as error:
            raise Reject(
                f"run {envelope.run_id}: its records do not fit this version: {error}"
            ) from None
        # A run that was woken from the dead letters has a later deadline than its record.
        run = run.model_copy(update={"deadline": state.deadline})
        handoff = Handoff(
            role=role_of(delivery.stream),
            turn=envelope.turn,
            branch=envelope.branch,
            payload=payload,
        )
        clock = delivery.bus.clock.now
        host = BusHost(
            self._inbox,
            run,
            handoff.agent,
            envelope.turn,
            envelope.branch,
            clock,
            state.decisions,
        )
        try:
            step_result = await take_step(
                run,
                journal,
                handoff,
                host,
                worker=self._worker,
                clock=clock,
                waited=clock() - delivery.published,
            )
        except ApprovalNeeded as needed:
            request = needed.request
            await waits.park(
                delivery, request.request, request.model_dump_json().encode(), request.seconds
            )
            log.info("waits for approval", agent=handoff.agent, of=request.name)
            return
        except BudgetExceeded as error:
            await delivery.bus.end_run(run.id, "budget", str(error))
            raise
        except RequestFailed as error:
            raise Retry(str(error)) from error
        except AgentError as error:
            # A role or workflow that can't go on is a fault of code or data: no retry fixes it.
            raise Reject(f"{type(error).__name__}: {error}") from error
        step = _with_history(step_result.step, host, delivery)
        over_budget = await delivery.commit(commit_of(run, step, step_result.routing))
        log.info(
            "step",
            agent=handoff.agent,
            turn=envelope.turn,
            branch=envelope.branch,
            decision=step.decision.kind,
            over_budget=over_budget,
        )


def _with_history(step: Step, host: BusHost, delivery: Delivery) -> Step:
    """The step, with what only its worker has seen of how it came about."""
    timings = step.timings.model_copy(
        update={
            "retries": delivery.envelope.attempt,
            "deliveries": delivery.lease.count,
            "requests": tuple(sorted(host.timings, key=lambda timing: timing.number)),
        }
    )
    return step.model_copy(update={"timings": timings, "approvals": tuple(host.approvals)})
