"""`completion`: one completion of one policy, as it is. For questions whose checker reads text."""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.payloads import QuestionPayload
from loopline.agents.records import JsonObject, Run, Step
from loopline.agents.roles.completion import CompletionOptions
from loopline.agents.workflows.endings import (
    finish_given_up_by_role,
    finish_with_answer,
    no_route_error,
)
from loopline.agents.workflows.routing import Handoff, Routing, parse_options


class CompletionWorkflow:
    """One step."""

    name = "completion"
    roles = ("completion",)
    default_policies: Mapping[str, str] = {"completion": "llm"}

    def check_options(self, options: JsonObject) -> JsonObject:
        return parse_options(self.name, CompletionOptions, options).model_dump(mode="json")

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff(role="completion", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        match step.agent, step.decision.kind:
            case "completion", "answer":
                return finish_with_answer(step)
            case "completion", "give_up":
                return finish_given_up_by_role(step)
            case _:
                raise no_route_error(self.name, step)
