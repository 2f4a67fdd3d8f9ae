"""The role worker: journal in, decision out, one committed step per delivery."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from loopline.agents.approvals import ApprovalNeeded
from loopline.agents.errors import AgentError, PromptMismatch, RequestFailed, VersionMismatch
from loopline.agents.payloads import Payload
from loopline.agents.records import Run, Step
from loopline.agents.stepping import TakenStep, take_step
from loopline.agents.versions import require_versions
from loopline.agents.workflows import Handoff
from loopline.bus import (
    BudgetExceeded,
    Delivery,
    Inbox,
    OtherVersion,
    Reject,
    Retry,
    read_content,
    run_ended,
    waits,
)
from loopline.workers.host import BusHost
from loopline.workers.messages import role_of
from loopline.workers.records_at_hand import run_at_hand, steps_at_hand
from loopline.workers.routing import commit_of

log = structlog.get_logger("loopline.workers.role")


class RoleHandler:
    """Executes the steps of the roles of this process."""

    def __init__(self, inbox: Inbox, worker: str, build: str = "") -> None:
        """`build` names this program's version when it hands back another version's step."""
        self._inbox = inbox
        self._worker = worker
        self._build = f"this worker runs {build or 'an unknown build'}"

    async def handle(self, delivery: Delivery) -> None:
        """Execute one step: read the journal, let the role decide, commit the result.

        A request that a budget refuses ends the run. Raises `Retry` for transient errors,
        `OtherVersion` for a run that a worker of another version may continue, `Reject` for one
        that no worker can.
        """
        envelope, payload = delivery.envelope, delivery.payload
        assert isinstance(payload, Payload)
        state = await delivery.run_state()
        if not state.active:
            raise run_ended(envelope.run_id, state.outcome)
        role = role_of(delivery.stream)
        try:
            run, journal = run_at_hand(state), steps_at_hand(state)
            require_versions(run, role)
        except VersionMismatch as error:
            raise OtherVersion(f"run {envelope.run_id}: {error}; {self._build}") from error
        if state.deadline != int(1000 * run.deadline) / 1000:
            # A run that was revived from the dead letters has a later deadline than its record.
            run = run.model_copy(update={"deadline": state.deadline})
        handoff = Handoff(
            role=role,
            turn=envelope.turn,
            branch=envelope.branch,
            payload=payload,
        )
        try:
            step_result, host = await self._take(run, journal, handoff, delivery, state.decisions)
        except ApprovalNeeded as needed:
            request = needed.request
            asks_outcome = request.kind == "outcome"
            await waits.park(
                delivery,
                request.request,
                request.model_dump_json().encode(),
                request.seconds,
                unfinished=request.request.removesuffix("/outcome") if asks_outcome else None,
            )
            what = "a call's outcome" if asks_outcome else "approval"
            log.info(f"waits for {what}", agent=handoff.agent, of=request.name)
            return
        except BudgetExceeded as error:
            await delivery.bus.end_run(run.id, "budget", str(error))
            raise
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

    async def _take(
        self,
        run: Run,
        journal: tuple[Step, ...],
        handoff: Handoff,
        delivery: Delivery,
        decisions: Mapping[str, bytes],
    ) -> tuple[TakenStep, BusHost]:
        """Take the step with the run's original prompts and the decisions made for it."""
        clock = delivery.bus.clock.now
        while True:
            host = BusHost(
                self._inbox,
                run,
                handoff.agent,
                handoff.turn,
                handoff.branch,
                clock,
                decisions,
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
            except RequestFailed as error:
                raise Retry(str(error)) from error
            except PromptMismatch as error:
                if error.file in run.prompt_files:
                    raise Reject(f"{type(error).__name__}: {error}") from error
                text = await read_content(delivery.bus, error.digest)
                if text is None:
                    raise OtherVersion(f"{error}; {self._build}") from error
                # The retried step repeats its earlier requests and finds their stored answers.
                files = {**run.prompt_files, error.file: text}
                run = run.model_copy(update={"prompt_files": files})
            except VersionMismatch as error:
                raise OtherVersion(f"{error}; {self._build}") from error
            except AgentError as error:
                # A role or workflow that can't continue is a bug in code or data: no retry helps.
                raise Reject(f"{type(error).__name__}: {error}") from error
            else:
                return step_result, host


def _with_history(step: Step, host: BusHost, delivery: Delivery) -> Step:
    """The step, with facts about its execution that only its worker knows."""
    timings = step.timings.model_copy(
        update={
            "retries": delivery.envelope.attempt,
            "deliveries": delivery.lease.count,
            "requests": tuple(sorted(host.timings, key=lambda timing: timing.number)),
        }
    )
    return step.model_copy(update={"timings": timings, "approvals": tuple(host.approvals)})
