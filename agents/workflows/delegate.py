"""`delegate`: a big model plans and hands sub-problems to a small one; sub-problems that the small
model fails go back to the big one.

    planner (t) ──delegate──▶ slm (t+1, branch 0…n-1) ──escalate──▶ expert (t+2, same branch)
        ▲                          │ answer                            │ answer, give_up
        └──── planner (t+3) ◀──────┴────────────── join ◀──────────────┘

A delegation takes three turns whether or not the expert is needed, so the continuation's turn is
known at the time of the fan-out.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from loopline.agents.payloads import (
    EscalationPayload,
    QuestionPayload,
    ResumePayload,
    SubtaskPayload,
    parse_payload,
)
from loopline.agents.prompts import Prompt, PromptSet, prompt_in
from loopline.agents.records import JsonObject, Run, Step
from loopline.agents.roles.planner import delegated_problems
from loopline.agents.workflows.routing import (
    MAX_TURNS,
    Arrive,
    Continue,
    Fanout,
    Handoff,
    Options,
    Routing,
    finish_given_up_by_role,
    finish_with_answer,
    finish_without_answer,
    no_route_error,
    parse_options,
)


class DelegateOptions(Options):
    """Options of `delegate`."""

    calculator: bool = True
    """Offer `calculate` to every role."""
    prompts: PromptSet = "general"
    """Prompt set: general ones for any domain, or the published ones for word problems, which put
    the answer in a box."""
    min_logprob: float | None = Field(default=None, le=0)
    """Minimum mean log-probability of the tokens of a sub-task's answer. Below it, the sub-task
    goes to the expert, and the rest of the run continues. None: not checked."""


class DelegateWorkflow:
    """Planner, small solvers, expert."""

    name = "delegate"
    roles = ("planner", "slm", "expert")
    default_policies: Mapping[str, str] = {"planner": "llm", "slm": "slm", "expert": "llm"}

    def check_options(self, options: JsonObject) -> JsonObject:
        return parse_options(self.name, DelegateOptions, options).model_dump(mode="json")

    def prompts_in(self, options: JsonObject) -> tuple[Prompt, ...]:
        prompt_set = parse_options(self.name, DelegateOptions, options).prompts
        return tuple(prompt_in(prompt_set, role) for role in self.roles)

    def answering(self, options: JsonObject) -> tuple[str, ...]:
        return ("planner",)

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff(role="planner", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        match step.agent, step.decision.kind:
            case "planner", "answer":
                return finish_with_answer(step)
            case "planner", "give_up":
                return finish_given_up_by_role(step)
            case "planner", "delegate":
                return self._route_delegation(step)
            case (("slm" | "expert"), "answer"):
                return Arrive(_join(_asked_turn(step)))
            case "expert", "give_up":
                # The planner reads the reason as the answer to its call, and decides how to
                # continue.
                return Arrive(_join(_asked_turn(step)))
            case "slm", "escalate":
                return self._route_escalation(step)
            case _:
                raise no_route_error(self.name, step)

    def _route_delegation(self, step: Step) -> Routing:
        problems = delegated_problems(step)
        if not problems:
            raise no_route_error(self.name, step)
        if step.turn + 3 >= MAX_TURNS:
            return finish_without_answer(f"planner: no answer within {MAX_TURNS} turns")
        return Fanout(
            handoffs=tuple(
                Handoff(
                    role="slm",
                    turn=step.turn + 1,
                    branch=branch,
                    payload=SubtaskPayload(
                        problem=problem.problem,
                        expected_type=problem.expected_type,
                        asked_turn=step.turn,
                    ),
                )
                for branch, problem in enumerate(problems)
            ),
            join=_join(step.turn),
            continuation=Handoff(
                role="planner",
                turn=step.turn + 3,
                payload=ResumePayload(asked_turn=step.turn, branches=len(problems)),
            ),
        )

    def _route_escalation(self, step: Step) -> Routing:
        payload = parse_payload(step.input)
        if not isinstance(payload, SubtaskPayload):
            raise no_route_error(self.name, step)
        reason = step.decision.data.get("reason")
        return Continue(
            (
                Handoff(
                    role="expert",
                    turn=step.turn + 1,
                    branch=step.branch,
                    payload=EscalationPayload(
                        problem=payload.problem,
                        expected_type=payload.expected_type,
                        asked_turn=payload.asked_turn,
                        reason=reason if isinstance(reason, str) else "",
                    ),
                ),
            )
        )


def _join(asked_turn: int) -> str:
    return f"delegation-{asked_turn}"


def _asked_turn(step: Step) -> int:
    payload = parse_payload(step.input)
    if not isinstance(payload, SubtaskPayload | EscalationPayload):
        raise no_route_error("delegate", step)
    return payload.asked_turn
