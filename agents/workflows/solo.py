"""`solo`: one model answers. The baseline for a team."""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.payloads import QuestionPayload
from loopline.agents.prompts import Prompt, PromptSet, prompt_in
from loopline.agents.records import JsonObject, Run, Step
from loopline.agents.workflows.routing import (
    Handoff,
    Options,
    Routing,
    finish_given_up_by_role,
    finish_with_answer,
    no_route_error,
    parse_options,
)


class SoloOptions(Options):
    """Options of `solo`."""

    calculator: bool = True
    """Offer `calculate` to the model."""
    prompts: PromptSet = "general"
    """Prompt set: general ones for any domain, or the published ones for word problems, which put
    the answer in a box."""


class SoloWorkflow:
    """One step."""

    name = "solo"
    roles = ("solo",)
    default_policies: Mapping[str, str] = {"solo": "llm"}

    def check_options(self, options: JsonObject) -> JsonObject:
        return parse_options(self.name, SoloOptions, options).model_dump(mode="json")

    def prompts_in(self, options: JsonObject) -> tuple[Prompt, ...]:
        prompt_set = parse_options(self.name, SoloOptions, options).prompts
        return tuple(prompt_in(prompt_set, role) for role in self.roles)

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff(role="solo", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        match step.agent, step.decision.kind:
            case "solo", "answer":
                return finish_with_answer(step)
            case "solo", "give_up":
                return finish_given_up_by_role(step)
            case _:
                raise no_route_error(self.name, step)
