"""`umi_single`: one model thinks, calls and answers. The baseline for `umi`.

    single (t) ──call──▶ single (t+1) ──…──▶ answer, or gives up

It has the options, the tools and the limits of `umi`; only the division of work differs.
"""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.payloads import QuestionPayload
from loopline.agents.records import JsonObject, Run, Step
from loopline.agents.roles.umi.settings import UmiOptions, tools_of
from loopline.agents.workflows.routing import (
    Handoff,
    Routing,
    finish_given_up_by_role,
    finish_with_answer,
    no_route_error,
    parse_options,
)
from loopline.agents.workflows.umi import finish_after_observation, hand_over


class UmiSingleWorkflow:
    """One role, repeatedly. Its model writes the published form of a call: `constrained` has no
    effect here, since a schema leaves no room for the thought."""

    name = "umi_single"
    roles = ("umi_single",)
    offers_tools = True
    default_policies: Mapping[str, str] = {"umi_single": "umi/single"}

    def check_options(self, options: JsonObject) -> JsonObject:
        return parse_options(self.name, UmiOptions, options).model_dump(mode="json")

    def first(self, run: Run) -> tuple[Handoff, ...]:
        """The first hand-over. Raises `InvalidTask`: a run whose tools can't be offered is
        refused."""
        tools_of(run)
        return (Handoff(role="umi_single", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        match step.agent, step.decision.kind:
            case "umi_single", ("call" | "refused"):
                return finish_after_observation(run, journal, step) or hand_over("umi_single", step)
            case "umi_single", "answer":
                return finish_with_answer(step)
            case "umi_single", "give_up":
                return finish_given_up_by_role(step)
            case _:
                raise no_route_error(self.name, step)
