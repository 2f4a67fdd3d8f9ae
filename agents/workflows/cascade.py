"""`cascade`: the small model answers first; if the ladder doubts its answer, the big model is
asked.

    first (0) ──answer──▶ the run's answer
        │ escalate, or an audit
        ▼
    solo (1) ──answer──▶ the run's answer

An *audited* run has both answers, whatever the ladder's verdict: audits measure how often accepted
answers are wrong. A run's id determines whether it is audited.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from loopline.agents.cascade_options import CascadeOptions
from loopline.agents.payloads import QuestionPayload
from loopline.agents.prompts import Prompt, prompt_in
from loopline.agents.records import JsonObject, Run, Step
from loopline.agents.workflows.routing import (
    Continue,
    Handoff,
    Routing,
    finish_given_up_by_role,
    finish_with_answer,
    no_route_error,
    parse_options,
)


class CascadeWorkflow:
    """One step, or two."""

    name = "cascade"
    roles = ("first", "solo")
    default_policies: Mapping[str, str] = {"first": "slm", "solo": "llm"}

    def check_options(self, options: JsonObject) -> JsonObject:
        return parse_options(self.name, CascadeOptions, options).model_dump(mode="json")

    def prompts_in(self, options: JsonObject) -> tuple[Prompt, ...]:
        prompt_set = parse_options(self.name, CascadeOptions, options).prompts
        return (prompt_in(prompt_set, "solo"),)

    def answering(self, options: JsonObject) -> tuple[str, ...]:
        return self.roles

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff(role="first", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        match step.agent, step.decision.kind:
            case "first", "answer" if not is_audited(run):
                return finish_with_answer(step)
            case "first", ("answer" | "escalate"):
                return Continue((Handoff(role="solo", turn=1, payload=QuestionPayload()),))
            case "solo", "answer":
                return finish_with_answer(step)
            case "solo", "give_up":
                return finish_given_up_by_role(step)
            case _:
                raise no_route_error(self.name, step)


def is_audited(run: Run) -> bool:
    """Whether the big model is asked whatever the ladder's verdict: drawn from the run's id."""
    share = CascadeOptions.model_validate(run.options).audit
    drawn = int.from_bytes(hashlib.sha256(f"audit/{run.id}".encode()).digest()[:8])
    return drawn < share * 2**64
